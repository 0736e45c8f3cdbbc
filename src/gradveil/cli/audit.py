"""`gradveil audit`: from options to a report."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradveil.cli._estimate import confirm_long_run, print_estimate
from gradveil.cli._fail_on import ANY, FORM, KNOWN, exit_if_failed, parse_fail_on
from gradveil.cli._help import (
    DATA_OPTION,
    DEVICE,
    DEVICE_FORM,
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
    QUIET,
    RAY,
    SEED,
)
from gradveil.cli._output import print_table

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit
    from gradveil.audit.verdict import Verdict
    from gradveil.config import AuditConfig
    from gradveil.core.compute import Compute
    from gradveil.core.time_limit import TimeLimit

METHOD = "NAME[:k=v,...]"


def option(panel: str) -> Callable[..., Any]:
    """Options of one panel of the help page."""

    def of_panel(help: str, *names: str, **more: Any) -> Any:
        return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)

    return of_panel


WHAT, WHO = option("What is audited"), option("Who attacks")
LOCAL = option("How clients train")
HOW, OUT = option("How it is computed"), option("What comes out")


def audit(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="AUDIT.toml", help="Settings in a TOML file; options on the command line override them."
        ),
    ] = None,
    model: Annotated[str | None, WHAT(f"Model to audit: {MODEL} (default lenet).", metavar=MODEL_FORM)] = None,
    weights: Annotated[
        str | None,
        WHAT("Weights of the model, a .safetensors file (default: random weights, untrained).", metavar="FILE"),
    ] = None,
    normalize: Annotated[str | None, WHAT(f"{NORMALIZE}.", metavar=NORMALIZE_FORM)] = None,
    allow_pickle: Annotated[
        bool,
        WHAT("Also accept --weights in a pickle file. A separate process reads it, tensors only.", "--allow-pickle"),
    ] = False,
    data: Annotated[str | None, WHAT(f"Clients' pictures: {PICTURES} (default photos).", metavar=PICTURES_FORM)] = None,
    capture: Annotated[
        str | None,
        WHAT(
            "Audit updates that real clients sent, recorded in FILE (docs/captures.md). --data "
            "then holds these clients' pictures.",
            metavar="FILE",
        ),
    ] = None,
    pictures: Annotated[
        str | None,
        WHAT(
            "With --capture: the row numbers in --data of the clients' pictures, client after client.",
            metavar="ROW,...",
        ),
    ] = None,
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    defense: Annotated[
        list[str] | None,
        WHAT(
            "Defense to audit (`gradveil list defenses`); repeatable (default: none, "
            "gaussian:scale=0.01 and prune:ratio=0.9).",
            metavar=METHOD,
        ),
    ] = None,
    images: Annotated[
        int | None, WHAT("Number of clients to attack, with --batch-size pictures each (default 8).")
    ] = None,
    draw: Annotated[
        str | None,
        WHAT(
            "Which pictures are attacked: a random sample by --seed, or the first ones of --data (default seed).",
            metavar="seed|first",
        ),
    ] = None,
    canaries: Annotated[
        int | None,
        WHAT(
            "Unusual pictures to audit as well, reported apart: outliers and rare classes (default 0; 16 with "
            "--budget thorough).",
        ),
    ] = None,
    batch_size: Annotated[int | None, WHAT("Pictures per client (default 1).")] = None,
    local_steps: Annotated[
        int | None, LOCAL("Training steps of a client in a round: 1 is FedSGD, 2 or more is FedAvg (default 1).")
    ] = None,
    rounds: Annotated[
        int | None, WHAT("Number of rounds of the same clients that the attacker combines (default 1).")
    ] = None,
    also: Annotated[
        list[str] | None,
        WHAT(
            "Also audit other values of one scenario key, such as batch_size=4,16; repeatable.", metavar="KEY=VALUE,..."
        ),
    ] = None,
    local_rate: Annotated[float | None, LOCAL("Learning rate of the local steps (default 1).")] = None,
    epochs: Annotated[
        int | None, LOCAL("Epochs of a client over its pictures in a round, in the place of --local-steps (default 0).")
    ] = None,
    local_batch_size: Annotated[
        int | None, LOCAL("Pictures of one local step; 0: all of the client's (default 0).")
    ] = None,
    order: Annotated[
        str | None,
        LOCAL(
            "Order of a client's minibatches; unknown: the client shuffles, and the attacker takes every step on all "
            "its pictures (default known).",
            metavar="known|unknown",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        LOCAL("Optimizer of the local steps, as in torch.optim (default sgd).", metavar=OPTIMIZERS),
    ] = None,
    momentum: Annotated[float | None, LOCAL("Momentum of sgd and rmsprop, from 0 (default 0).")] = None,
    nesterov: Annotated[
        bool | None, LOCAL("Nesterov's momentum for sgd (default: no).", "--nesterov/--no-nesterov")
    ] = None,
    weight_decay: Annotated[float | None, LOCAL("Weight decay of the local steps, from 0 (default 0).")] = None,
    schedule: Annotated[
        str | None,
        LOCAL("Course of the rate over the steps of a round (default constant).", metavar="constant|step|cosine"),
    ] = None,
    warmup: Annotated[int | None, LOCAL("Steps in which the rate rises to its value (default 0).")] = None,
    clip_gradients: Annotated[
        float | None, LOCAL("Largest norm of the gradient of a local step; 0: no clipping (default 0).")
    ] = None,
    loss: Annotated[str | None, LOCAL(f"{LOSS}.", metavar=LOSS_FORM)] = None,
    label_smoothing: Annotated[float | None, LOCAL("Label smoothing of the loss, 0 to 1 (default 0).")] = None,
    class_weights: Annotated[
        str | None, LOCAL("Weights of the classes in the loss, one for each (default: all alike).", metavar="W,W,...")
    ] = None,
    dropout: Annotated[
        str | None,
        LOCAL("Whether clients draw dropout masks; the attacker does not know them (default off).", metavar="off|on"),
    ] = None,
    augment: Annotated[
        str | None,
        LOCAL(
            "What clients draw of their pictures in every step; the attacker does not know it (default none).",
            metavar="none|crop-flip",
        ),
    ] = None,
    update_precision: Annotated[
        str | None,
        LOCAL("Numbers to which clients round their update (default float32).", metavar="float32|bf16|fp16"),
    ] = None,
    bn: Annotated[str | None, LOCAL(f"{NORMALIZATION} (default eval).", metavar="eval|batch|batch-shared")] = None,
    attack: Annotated[
        list[str] | None,
        WHO("Attack to run (`gradveil list attacks`); repeatable (default autoattack).", metavar=METHOD),
    ] = None,
    attacker: Annotated[
        str | None,
        WHO(
            "The attacker's position. Only `malicious` may modify the model (default curious).",
            metavar="eavesdropper|curious|malicious",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        WHO(
            "Whether the attacker is given the labels or infers them from the update (default known).",
            metavar="known|inferred",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        WHO(
            "How many steps and restarts attacks use (default standard; quick if no model, data or attack is named).",
            metavar="quick|standard|thorough",
        ),
    ] = None,
    convergence: Annotated[
        bool | None,
        WHO(
            "Also run every attack with twice its steps, to see whether it has converged "
            "(default: yes, except with the quick budget).",
            "--convergence/--no-convergence",
        ),
    ] = None,
    tuned_on: Annotated[
        list[str] | None,
        WHO(
            "Folder of a run in which attacks were tuned, or a file of picture hashes; repeatable. An audit of one "
            "of those pictures is refused.",
            metavar="RUN|FILE",
        ),
    ] = None,
    seed: Annotated[int | None, HOW(SEED)] = None,
    seconds: Annotated[
        float | None,
        HOW(
            "Time that the run may take: closed forms and line-ups first, then searches with growing effort. The "
            "verdict says what was reached. Run the same command again to continue (default: no limit).",
            metavar="SECONDS",
        ),
    ] = None,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of the attacks; tf32 is faster on a GPU and less exact (default float32).",
            metavar="float32|tf32|float64",
        ),
    ] = "float32",
    backend: Annotated[
        str,
        HOW(
            "How gradients of many trials are computed. Results are equal, speed differs (default auto).",
            metavar="auto|loop|vmap|sweep",
        ),
    ] = "auto",
    chunk: Annotated[int | None, HOW("Number of trials to compute at once (default: measured at the start).")] = None,
    workers: Annotated[
        int, HOW("Number of processes, one thread each; 0 computes in this process with all threads (default 0).")
    ] = 0,
    ray: Annotated[str, HOW(RAY, metavar="ADDRESS|auto|local")] = "",
    limit: Annotated[
        float | None,
        HOW("With --workers: seconds that a process may take for one shard before it is restarted.", metavar="SECONDS"),
    ] = None,
    metric: Annotated[
        list[str] | None,
        OUT(
            "Metric to compute (`gradveil list metrics`); repeatable (default psnr, ssim, "
            "retrieval, retrieval-top5, retrieval-rank, psnr-symmetric and retrieval-symmetric).",
            metavar=METHOD,
        ),
    ] = None,
    lpips_weights: Annotated[
        str | None, OUT("AlexNet's LPIPS weights, .npz or .safetensors; the metric lpips needs them.", metavar="FILE")
    ] = None,
    lpips_vgg_weights: Annotated[
        str | None, OUT("VGG16's LPIPS weights, .npz or .safetensors; the metric lpips-vgg needs them.", metavar="FILE")
    ] = None,
    tagger: Annotated[
        str | None,
        OUT(
            "Network for the metrics jaccard and retrieval-features: EfficientNet-Lite0's "
            "weights, or a Python file and a function in it.",
            metavar="FILE|FILE.py:FACTORY",
        ),
    ] = None,
    gallery: Annotated[
        int | None, OUT("Largest number of pictures among which retrieval looks for the original (default 1000).")
    ] = None,
    lineup: Annotated[
        str | None,
        OUT(
            "Candidates among whom the best possible guess names each picture, the original included "
            "(default auto: 1001, or 101 where each takes a whole client; at most what the gallery allows).",
            metavar="N|auto|off",
        ),
    ] = None,
    limit_named: Annotated[
        float | None,
        OUT("Largest share that may be named for the verdict `bounded`; 0.05 is 5 % (default 0.05).", metavar="SHARE"),
    ] = None,
    out: Annotated[
        Path | None,
        OUT(
            "Folder of the run; the folder of an interrupted run is continued (default runs/DATA-MODEL-TIME).",
            metavar="DIR",
        ),
    ] = None,
    claim: Annotated[
        float | None,
        OUT("Test the claim that at most this share of such pictures leaks; 0.01 is 1 %.", metavar="SHARE"),
    ] = None,
    fail_on: Annotated[
        str | None,
        OUT(f"Exit with code 1 if a defense has one of these verdicts, of {KNOWN} (default: none).", metavar=FORM),
    ] = None,
    strict: Annotated[bool, OUT(f"Short for --fail-on {ANY}.", "--strict")] = False,
    redact: Annotated[bool, OUT("Leave pictures, names and paths out of the report.", "--redact")] = False,
    as_json: Annotated[bool, OUT("Print a summary as JSON.", "--json")] = False,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
    no_pictures: Annotated[
        bool, OUT("Draw no reconstructions on the terminal while the run is at work.", "--no-pictures")
    ] = False,
    dry_run: Annotated[
        bool, OUT("Print how long the run would take on this machine, by part and by budget; run nothing.", "--dry-run")
    ] = False,
    yes: Annotated[bool, OUT("Start a run of more than an hour without asking.", "--yes")] = False,
    no_doctor: Annotated[
        bool, OUT("Start even where the first look at the model says that nothing can come of it.", "--no-doctor")
    ] = False,
) -> None:
    """Attack the updates of a model's clients under each defense, and report what was reconstructed.

    [bold]Examples[/bold]

    gradveil audit   [dim]built-in photographs, LeNet, three defenses, --budget quick[/dim]

    gradveil audit --data pictures/ --model resnet20-4 --weights w.safetensors --defense none --defense prune:ratio=0.95

    gradveil audit --model mine.py:build --attack invertgrad:steps=2400,restarts=4 --budget thorough --device cuda

    gradveil audit --capture round-3.safetensors --data pictures/   [dim]updates of real clients[/dim]

    gradveil audit audit.toml --out runs/again   [dim]run the same command again to resume[/dim]

    [dim]gradveil list attacks|defenses|metrics|models|data prints the names and their options.[/dim]
    """
    from gradveil.cli._options import check_claim, check_out, compute_of, config_of
    from gradveil.config.effort import EFFORTS
    from gradveil.core.time_limit import TimeLimit
    from gradveil.models.weights import allow_pickles

    begun = time.monotonic()
    given = {
        "--model": model, "--weights": weights, "--normalize": normalize, "--data": data, "--data-option": data_option,
        "--defense": defense, "--images": images, "--draw": draw, "--canaries": canaries, "--batch-size": batch_size,
        "--local-steps": local_steps, "--local-rate": local_rate, "--rounds": rounds, "--capture": capture,
        "--epochs": epochs, "--local-batch-size": local_batch_size, "--order": order, "--optimizer": optimizer,
        "--momentum": momentum, "--nesterov": nesterov, "--weight-decay": weight_decay, "--schedule": schedule,
        "--warmup": warmup, "--clip-gradients": clip_gradients, "--loss": loss, "--label-smoothing": label_smoothing,
        "--class-weights": class_weights, "--dropout": dropout, "--augment": augment,
        "--update-precision": update_precision,
        "--pictures": pictures, "--bn": bn, "--attack": attack, "--attacker": attacker, "--labels": labels,
        "--budget": budget, "--also": also, "--convergence": convergence, "--seed": seed, "--tuned-on": tuned_on,
        "--seconds": seconds,
        "--metric": metric, "--lpips-weights": lpips_weights, "--lpips-vgg-weights": lpips_vgg_weights,
        "--tagger": tagger, "--gallery": gallery, "--lineup": lineup,
        "--limit-named": limit_named,
    }  # fmt: skip
    check_claim(claim)
    fails = parse_fail_on(fail_on, strict)
    check_out(out)
    compute = compute_of(device, precision, backend, chunk, workers, limit, ray)
    resolved = config_of(config, given)
    output = Output(
        redact=redact,
        as_json=as_json,
        quiet=quiet,
        yes=yes,
        examine=not no_doctor,
        claim=claim,
        fail_on=fails,
        limit=TimeLimit.of(resolved.seconds, seconds, begun),
        pictures=not (no_pictures or redact),
    )
    with allow_pickles(allow_pickle):
        if dry_run:
            by_budget = {name: config_of(config, given | {"--budget": name}) for name in EFFORTS}
            return print_estimate(resolved, by_budget, compute, as_json)
        run_and_report(resolved, out or default_folder(resolved), compute, output)


@dataclass(frozen=True, kw_only=True)
class Output:
    """What the user wants to see."""

    redact: bool
    as_json: bool
    quiet: bool
    yes: bool
    examine: bool
    claim: float | None
    fail_on: frozenset[str]
    limit: TimeLimit | None = None
    pictures: bool = True  # on a terminal


def run_and_report(config: AuditConfig, folder: Path, compute: Compute, output: Output) -> None:
    from gradveil.audit.audit import run_audit
    from gradveil.config import build
    from gradveil.config.checkpoint import describe_changed_model
    from gradveil.experiment.timed_progress import in_time
    from gradveil.report.conclude import conclude

    audit = replace(build(config), limit=output.limit)
    if output.examine:
        examine(audit, output.quiet)
    if not output.quiet and (note := describe_changed_model(audit.scenario.model, audit.defenses)):
        print(note, file=sys.stderr)
    if not output.quiet and output.limit is None:
        confirm_long_run(audit, compute, output.yes)
    run_audit(audit, folder, compute, in_time(output.limit, output.quiet, pictures=output.pictures))
    verdict = conclude(folder, redact=output.redact, claim=output.claim)
    print_verdict(verdict, folder, output)
    exit_if_failed(verdict, output.fail_on)


def examine(audit: Audit, quiet: bool) -> None:
    """The quick part of `gradveil doctor`. ConfigError where no attack can say anything."""
    from gradveil.core.errors import ConfigError
    from gradveil.doctor.signal import find_hopeless_scenario

    if (found := find_hopeless_scenario(audit.scenario)) is not None:
        raise ConfigError(f"model: {found.what}: {found.why}; {found.do}, or audit it with `no_doctor`")
    replays = {c: one for c, one in audit.origin.get("replay", {}).items() if one.startswith("not reproduced")}
    for client, summary in replays.items() if not quiet else ():
        print(f"{client}: {summary}", file=sys.stderr)
    if replays and not quiet:
        print("an audit of these clients ends inconclusive; gradveil capture check ranks the causes", file=sys.stderr)


def print_verdict(verdict: Verdict, folder: Path, output: Output) -> None:
    from gradveil.audit.results import read_run
    from gradveil.audit.verdict import to_json
    from gradveil.report.terminal import sentences, tables

    report = folder / "report.html"
    if output.as_json:
        places = {"folder": str(folder), "report": str(report)}
        typer.echo(json.dumps(places | to_json(read_run(folder), verdict, output.claim), indent=2))
    elif not output.quiet:
        for title, columns, rows in tables(verdict.cells):
            if title:
                typer.echo(title)
            print_table(columns, rows)
        for sentence in sentences(verdict):
            typer.echo(sentence)
        typer.echo(f"report: {report}")


def default_folder(config: AuditConfig) -> Path:
    """runs/<data>-<model>-<time>"""
    names = (Path(config.scenario.capture).stem or Path(config.scenario.data).name, Path(config.scenario.model).name)
    what = re.sub("[^A-Za-z0-9.+-]+", "_", "-".join(names))
    return Path("runs") / f"{what}-{datetime.now():%Y%m%d-%H%M%S}"
