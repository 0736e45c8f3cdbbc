"""`gradveil doctor`: what is right and wrong before any attack."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli._errors import in_words, options_of
from gradveil.cli._help import (
    DATA_OPTION,
    LOSS,
    LOSS_FORM,
    MODEL,
    MODEL_FORM,
    NORMALIZATION,
    NORMALIZE,
    NORMALIZE_FORM,
    OPTIMIZERS,
    PAIR_FORM,
    PICTURES,
    PICTURES_FORM,
)
from gradveil.cli.audit import HOW, LOCAL, METHOD, WHAT, WHO

if TYPE_CHECKING:
    from gradveil.doctor.finding import Diagnosis, Finding

UNWELL = 1
WIDTH = 100
SIGNS = {"problem": "PROBLEM", "note": "note", "ok": "ok"}


def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="AUDIT.toml", help="Settings of the audit to come, in a TOML file.")
    ] = None,
    model: Annotated[str | None, WHAT(f"Model to audit: {MODEL} (default lenet).", metavar=MODEL_FORM)] = None,
    weights: Annotated[
        str | None, WHAT("Weights of the model, a .safetensors file (default: random weights).", metavar="FILE")
    ] = None,
    allow_pickle: Annotated[
        bool,
        WHAT("Also accept --weights in a pickle file. A separate process reads it, tensors only.", "--allow-pickle"),
    ] = False,
    normalize: Annotated[str | None, WHAT(f"{NORMALIZE}.", metavar=NORMALIZE_FORM)] = None,
    data: Annotated[str | None, WHAT(f"Clients' pictures: {PICTURES} (default photos).", metavar=PICTURES_FORM)] = None,
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    capture: Annotated[
        str | None, WHAT("A captured round: whether the pictures lead to its updates and, if not, why.", metavar="FILE")
    ] = None,
    pictures: Annotated[
        str | None,
        WHAT("With --capture: the row numbers in --data of the clients' pictures.", metavar="ROW,..."),
    ] = None,
    defense: Annotated[
        list[str] | None, WHAT("Defense of the audit to come; repeatable (default as for audit).", metavar=METHOD)
    ] = None,
    images: Annotated[int | None, WHAT("Number of clients that are attacked (default 8).")] = None,
    batch_size: Annotated[int | None, WHAT("Pictures per client (default 1).")] = None,
    local_steps: Annotated[int | None, LOCAL("Training steps of a client in a round (default 1).")] = None,
    local_rate: Annotated[float | None, LOCAL("Learning rate of the local steps (default 1).")] = None,
    epochs: Annotated[int | None, LOCAL("Epochs of a client, in the place of --local-steps (default 0).")] = None,
    local_batch_size: Annotated[int | None, LOCAL("Pictures of one local step; 0: all of them (default 0).")] = None,
    order: Annotated[
        str | None, LOCAL("Order of a client's minibatches (default known).", metavar="known|unknown")
    ] = None,
    optimizer: Annotated[
        str | None, LOCAL("Optimizer of the local steps, as in torch.optim (default sgd).", metavar=OPTIMIZERS)
    ] = None,
    momentum: Annotated[float | None, LOCAL("Momentum of sgd and rmsprop, from 0 (default 0).")] = None,
    weight_decay: Annotated[float | None, LOCAL("Weight decay of the local steps, from 0 (default 0).")] = None,
    loss: Annotated[str | None, LOCAL(f"{LOSS}.", metavar=LOSS_FORM)] = None,
    label_smoothing: Annotated[float | None, LOCAL("Label smoothing of the loss, 0 to 1 (default 0).")] = None,
    class_weights: Annotated[
        str | None, LOCAL("Weights of the classes in the loss, one for each (default: all alike).", metavar="W,W,...")
    ] = None,
    dropout: Annotated[str | None, LOCAL("Whether clients draw dropout masks (default off).", metavar="off|on")] = None,
    bn: Annotated[str | None, LOCAL(f"{NORMALIZATION} (default eval).", metavar="eval|batch|batch-shared")] = None,
    attack: Annotated[
        list[str] | None, WHO("Attack of the audit to come; repeatable (default autoattack).", metavar=METHOD)
    ] = None,
    attacker: Annotated[
        str | None, WHO("The attacker's position (default curious).", metavar="eavesdropper|curious|malicious")
    ] = None,
    labels: Annotated[
        str | None, WHO("Whether the attacker is given the labels (default known).", metavar="known|inferred")
    ] = None,
    budget: Annotated[
        str | None, WHO("Effort of the audit to come (default standard).", metavar="quick|standard|thorough")
    ] = None,
    seconds: Annotated[
        float, HOW("Look for the causes of a round that does not replay for about so long (default 20).", min=1)
    ] = 20.0,
    as_json: Annotated[bool, HOW("Print the findings as JSON.", "--json")] = False,
) -> None:
    """Look at a model, its data, its training and a captured round before any attack. Nothing is written.

    Exit code 0: no problem was found. 1: there is one. 2: bad input.

    [bold]Examples[/bold]

    gradveil doctor --model net.py:make --weights w.safetensors --data pictures/

    gradveil doctor --capture round-3.safetensors --data pictures/   [dim]why a round does not replay[/dim]
    """
    from gradveil.cli._options import config_of
    from gradveil.config.effort import EFFORTS
    from gradveil.doctor.diagnose import diagnose_config
    from gradveil.models.weights import allow_pickles

    given = {
        "--model": model, "--weights": weights, "--normalize": normalize, "--data": data, "--data-option": data_option,
        "--capture": capture, "--pictures": pictures, "--defense": defense, "--images": images,
        "--batch-size": batch_size, "--local-steps": local_steps, "--local-rate": local_rate, "--epochs": epochs,
        "--local-batch-size": local_batch_size, "--order": order, "--optimizer": optimizer, "--momentum": momentum,
        "--weight-decay": weight_decay, "--label-smoothing": label_smoothing, "--class-weights": class_weights,
        "--loss": loss,
        "--dropout": dropout, "--bn": bn, "--attack": attack, "--attacker": attacker, "--labels": labels,
        "--budget": budget,
    }  # fmt: skip
    by_budget = {name: config_of(config, given | {"--budget": name}) for name in EFFORTS}
    with allow_pickles(allow_pickle):
        found = diagnose_config(config_of(config, given), by_budget, seconds)
    report(found, as_json, " --allow-pickle" if allow_pickle else "")


def report(found: Diagnosis, as_json: bool, more: str = "") -> None:
    """Print the findings, and leave with exit code 1 if there is a problem. `more` belongs to the command."""
    from dataclasses import replace

    from gradveil.cli import app

    lines = [replace(one, what=one.what + more) if one.topic == "command" else one for one in found.findings]
    found = replace(found, findings=tuple(lines))

    options = options_of(app, ["audit"])
    if as_json:
        typer.echo(in_words(json.dumps(found.to_json(), indent=2), options))
    else:
        typer.echo("\n".join(write(found.by_level, options)))
        problems = len(found.problems)
        typer.echo(f"\n{problems} problem{'s' * (problems != 1)} found in {found.seconds:.1f} seconds")
    if not found.is_well:
        raise typer.Exit(UNWELL)


def write(findings: Sequence[Finding], options: Mapping[str, str]) -> list[str]:
    """Each with why it matters and what to do, indented; a command on one line, to be copied."""
    lines: list[str] = []
    for one in findings:
        what = f"{SIGNS[one.level]}: {one.topic}: {in_words(one.what, options)}"
        lines += [what] if one.topic == "command" else _wrap(what, "", "  ")
        for word, text in (("why", one.why), ("do", one.do)):
            lines += _wrap(f"{word}: {in_words(text, options)}", "  ", "    ") if text else []
    return lines


def _wrap(text: str, first: str, rest: str) -> list[str]:
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.wrap(text)
