"""Everything that can be said before an attack, in about ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from gradveil.config.load import from_tables, to_tables
from gradveil.config.schema import AuditConfig, Effort, Scalar
from gradveil.config.training import tables_of
from gradveil.core.choice import parse_choices
from gradveil.core.scenario import BatchNorm, LocalTraining
from gradveil.defenses import DEFENSES
from gradveil.doctor.command import look_at_command
from gradveil.doctor.data import look_at_data
from gradveil.doctor.finding import Diagnosis, Finding
from gradveil.doctor.model import look_at_model
from gradveil.doctor.reach import look_at_reach
from gradveil.doctor.replay import look_at_replay
from gradveil.doctor.signal import look_at_signal
from gradveil.doctor.subject import Subject, open_subject
from gradveil.doctor.time import look_at_time
from gradveil.doctor.training import look_at_training
from gradveil.doctor.weights import look_at_weights

Look = Callable[[Subject], Iterator[Finding]]
LOOKS: tuple[Look, ...] = (look_at_weights, look_at_model, look_at_data, look_at_training, look_at_signal)
FURTHER: tuple[Look, ...] = (look_at_replay, look_at_reach, look_at_time, look_at_command)  # where an audit can follow
CAPTURED: tuple[Look, ...] = (look_at_training, look_at_signal, look_at_replay)  # what `capture check` asks
SECONDS = 20.0


def diagnose(
    *,
    model: str | None = None,
    weights: str | Path | None = None,
    normalize: str | None = None,
    data: str | Path | None = None,
    data_options: Mapping[str, Scalar] | None = None,
    capture: str | Path | None = None,
    pictures: Sequence[int] | None = None,
    batch_size: int | None = None,
    batchnorm: BatchNorm | None = None,
    training: LocalTraining | None = None,
    defenses: Sequence[str] | None = None,
    budget: Effort | None = None,
    seconds: float = SECONDS,
) -> Diagnosis:
    """Look at a model, its data, its training and a captured round before any attack. Nothing is written.

    Args:
        model: Name in `MODELS`, or `FILE.py:FACTORY` for a function that returns your own (default lenet).
        weights: Weights of the model, a .safetensors file.
        normalize: Constants in front of the model, as for `gradveil.audit`.
        data: Clients' pictures: a name in `DATASETS`, a folder or a file.
        data_options: Options of the data set, such as `{"limit": 100}`.
        capture: A captured round: whether the pictures lead to its updates and, if not, why.
        pictures: With `capture`: the row numbers in `data` of the clients' pictures, client after client.
        batch_size: Pictures per client (default 1).
        batchnorm: Which statistics normalize (default eval, or as `training` says).
        training: How clients train (default: one step of SGD).
        defenses: Defenses of the audit to come, as `NAME[:k=v,...]`.
        budget: Effort of the audit to come.
        seconds: About how long the causes of a round that does not replay are looked for (default 20).
    """
    scenario: dict[str, Any] = {} if training is None else _describe_training(training)
    given = {
        "model": model,
        "weights": weights,
        "normalize": normalize,
        "data": data,
        "data_options": data_options,
        "capture": capture,
        "pictures": pictures,
        "batch_size": batch_size,
        "batchnorm": batchnorm,
    }
    scenario |= {key: _to_plain(value) for key, value in given.items() if value is not None}
    tables: dict[str, Any] = {"scenario": scenario}
    if defenses is not None:
        choices = parse_choices(list(defenses), "defenses", DEFENSES)
        tables["defense"] = {label: {"name": choice.name, **choice.options} for label, choice in choices.items()}
    if budget is not None:
        tables["budget"] = budget
    by_budget = {name: from_tables({**tables, "budget": name}) for name in get_args(Effort)}
    return diagnose_config(from_tables(tables), by_budget, seconds)


def _describe_training(training: LocalTraining) -> dict[str, Any]:
    """What is other than the default, and that it was said."""
    plain = tables_of(LocalTraining())
    return {key: value for key, value in tables_of(training).items() if value != plain[key] or key == "local_rate"}


def _to_plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple | range) else value


def diagnose_config(
    config: AuditConfig,
    by_budget: Mapping[str, AuditConfig],
    seconds: float = SECONDS,
    looks: Sequence[Look] = (*LOOKS, *FURTHER),
) -> Diagnosis:
    """The same for a whole config, and the same config with each budget. ConfigError where it cannot be used."""
    start = time.perf_counter()
    subject = open_subject(config, by_budget, seconds)
    found: list[Finding] = []
    for look in looks:
        if look not in FURTHER or not subject.hopeless:
            found += look(subject)
    return Diagnosis(findings=tuple(found), settings=to_tables(config), seconds=time.perf_counter() - start)
