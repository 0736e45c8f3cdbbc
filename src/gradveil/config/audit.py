"""An audit as a function: settings as keywords, a folder, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from gradveil.attacks import ATTACKS
from gradveil.audit.audit import run_audit
from gradveil.audit.verdict import Verdict
from gradveil.config.build import build
from gradveil.config.load import from_tables
from gradveil.config.schema import AuditConfig, Effort, Scalar
from gradveil.config.training import tables_of
from gradveil.core.choice import parse_choices
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import BatchNorm, LocalTraining
from gradveil.core.time_limit import TimeLimit
from gradveil.defenses import DEFENSES
from gradveil.experiment.progress import Progress
from gradveil.report.conclude import conclude


def audit(
    folder: str | Path,
    config: AuditConfig | None = None,
    *,
    model: str | None = None,
    weights: str | Path | None = None,
    normalize: str | None = None,
    data: str | Path | None = None,
    data_options: Mapping[str, Scalar] | None = None,
    capture: str | Path | None = None,
    pictures: Sequence[int] | None = None,
    defenses: Sequence[str] | None = None,
    attacks: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    images: int | None = None,
    batch_size: int | None = None,
    local_steps: int | None = None,
    local_rate: float | None = None,
    loss: str | None = None,
    training: LocalTraining | None = None,
    rounds: int | None = None,
    batchnorm: BatchNorm | None = None,
    labels: Literal["known", "inferred"] | None = None,
    attacker: Literal["eavesdropper", "curious", "malicious"] | None = None,
    lineup: int | Literal["auto"] | None = None,
    budget: Effort | None = None,
    seed: int | None = None,
    seconds: float | None = None,
    compute: Compute = Compute(),
    progress: Progress | None = None,
    redact: bool = False,
    claim: float | None = None,
    limit_named: float | None = None,
) -> Verdict:
    """Attack the updates of a model's clients under each defense, write the report, and return the verdict.

    A setting that is left out has the default of `AuditConfig`.

    Args:
        folder: Folder of the run. The folder of an interrupted run is continued.
        config: All settings at once; the keywords down to `seed`, and `limit_named`, are then left out.
        model: Name in `MODELS`, or `FILE.py:FACTORY` for a function that returns your own (default lenet).
        weights: Weights of the model, a .safetensors file (default: random weights, untrained).
        normalize: Constants in front of the model: imagenet, cifar10, cifar100, none, or numbers as in
            `0.5,0.5,0.5/0.25,0.25,0.25` (default auto: those of the data for a named model, none for your own).
        data: Clients' pictures: a name in `DATASETS`, a folder or a file (default photos).
        data_options: Options of the data set, such as `{"limit": 100}`.
        capture: Audit the updates in this file, which real clients sent. `data` then holds these clients' pictures.
        pictures: With `capture`: the row numbers in `data` of the clients' pictures, client after client.
        defenses: Defenses as `NAME[:k=v,...]` (default: none, gaussian:scale=0.01 and prune:ratio=0.9).
        attacks: Attacks as `NAME[:k=v,...]` (default autoattack).
        metrics: Metrics as `NAME[:k=v,...]` (default psnr, ssim, retrieval, retrieval-top5, retrieval-rank,
            psnr-symmetric and retrieval-symmetric).
        images: Number of clients to attack, with `batch_size` pictures each (default 8).
        batch_size: Pictures per client (default 1).
        local_steps: Training steps of a client in a round: 1 is FedSGD, 2 or more is FedAvg (default 1).
        local_rate: Learning rate of the local steps (default 1).
        loss: cross-entropy, binary-cross-entropy, or `FILE.py:NAME` for your own function of outputs and targets that
            returns their mean loss (default: what the data calls for).
        training: All that a client does in a round, such as `LocalTraining(optimizer="adam", rate=1e-3, epochs=2)`;
            `local_steps`, `local_rate` and `batchnorm` are then left out (default: one step of SGD).
        rounds: Number of rounds of the same clients that the attacker combines (default 1).
        batchnorm: Which statistics normalize, see `docs/configuration.md` (default eval).
        labels: Whether the attacker is given the labels or infers them from the update (default known).
        attacker: The attacker's position. Only `malicious` may modify the model (default curious).
        lineup: Candidates of a line-up, the original included; 0 holds none (default auto: as many as are quick).
        budget: How many steps and restarts attacks use: quick, standard or thorough (default standard).
        seed: Seed of everything random (default 0).
        seconds: Time that the audit may take. Closed forms and line-ups come first, then searches with growing effort.
            The verdict says what was reached, and the same folder can be continued (default: no limit).
        compute: Device, precision, back end and number of processes. Results do not depend on it, but for rounding.
        progress: What is called as trials are finished (default: nothing).
        redact: Leave pictures, names and paths out of the report.
        claim: Test the claim that at most this share of such pictures leaks; 0.01 is 1 %.
        limit_named: Largest share of the pictures that may be named for the verdict *bounded* (default 0.05).
    """
    scenario: dict[str, Any] = {
        "model": model, "weights": weights, "normalize": normalize, "data": data, "data_options": data_options,
        "capture": capture, "pictures": pictures, "images": images, "batch_size": batch_size,
        "local_steps": local_steps, "local_rate": local_rate, "rounds": rounds, "batchnorm": batchnorm,
        "labels": labels, "attacker": attacker, "loss": loss,
    }  # fmt: skip
    if training is not None:
        if not {"local_steps", "local_rate", "batchnorm"}.isdisjoint(_without_none(scenario)):
            raise ConfigError("says it all, leave out local_steps, local_rate and batchnorm", key="training")
        scenario |= tables_of(training) | {"loss": loss if training.loss == "cross-entropy" else str(training.loss)}
    given = {
        "defense": None if defenses is None else _choices(defenses, "defenses", DEFENSES),
        "attack": None if attacks is None else _choices(attacks, "attacks", ATTACKS),
        "metrics": metrics, "lineup": lineup, "budget": budget, "seed": seed, "scenario": _without_none(scenario),
        "limit_named": limit_named,
    }  # fmt: skip
    tables = _without_none(given)
    if config is not None and (len(tables) > 1 or tables["scenario"]):
        raise ConfigError("holds all settings, leave it out or leave out the others", key="config")
    config = config or from_tables(tables, _parameter)
    limit = TimeLimit.of(config.seconds, seconds)
    run_audit(replace(build(config), limit=limit), folder, compute, progress)
    return conclude(folder, redact=redact, claim=claim)


def _choices(texts: Sequence[str], where: str, table: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    choices = parse_choices(texts, where, table)
    return {label: {"name": choice.name, **choice.options} for label, choice in choices.items()}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as TOML would give it."""
    given = {key: value for key, value in values.items() if value is not None}
    return {key: _plain(value) for key, value in given.items()}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple | range) else value


def _parameter(key: str) -> str:
    """The parameter that sets a key of the config."""
    first, _, rest = key.removeprefix("scenario.").partition(".")
    name = {"defense": "defenses", "attack": "attacks"}.get(first, first)
    return f"{name}: {rest}" if rest else name
