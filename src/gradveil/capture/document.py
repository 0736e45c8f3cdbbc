"""The JSON document inside a capture: every key, what it may hold, and nothing else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

from gradveil.capture.format import CLIENT, VERSION, Capture
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.local_training import (
    FIRST,
    Augment,
    BatchNorm,
    Dropout,
    LocalOptimizer,
    LocalTraining,
    Loss,
    Order,
    Schedule,
    UpdatePrecision,
)
from gradveil.core.own_loss import OwnLoss
from gradveil.core.target import Target, TargetKind
from gradveil.models.header import without_duplicates

LONGEST = 1_000_000  # characters of the whole document
MOST_CLIENTS, MOST_EXAMPLES, MOST_STEPS, MOST_CLASSES = 10_000, 10_000, 100_000, 100_000
LARGEST_FLOAT = 1.7976931348623157e308
LARGEST_PICTURE = 25_000_000  # numbers
KEYS = {
    "version", "round", "training", "examples", "shape", "classes", "normalization", "model", "defense", "aggregate",
    "metrics", "producer", "target", "declared",
}  # fmt: skip
NEEDED = {"version", "round", "training", "examples", "shape", "classes"}
OWN, LONGEST_NAME = re.compile(r"[A-Za-z0-9_.+ -]+\.py:[A-Za-z_][A-Za-z0-9_]*"), 200  # of a loss of the client's own
READ = (1, VERSION)  # of version 1 a training has the keys of `FIRST` alone
CHOICES = {
    "batchnorm": get_args(BatchNorm), "optimizer": get_args(LocalOptimizer),
    "order": get_args(Order), "schedule": get_args(Schedule), "dropout": get_args(Dropout),
    "augment": get_args(Augment), "update_precision": get_args(UpdatePrecision),
}  # fmt: skip


def format_document(capture: Capture) -> str:
    """The document as text. A number that JSON cannot write, such as the loss of a client that diverged, is null."""
    metrics = {c: {k: v if math.isfinite(v) else None for k, v in m.items()} for c, m in capture.metrics.items()}
    content = {
        "version": VERSION,
        "round": capture.round,
        "training": {**asdict(capture.training), "loss": Path(capture.training.loss).name},
        "examples": dict(capture.examples),
        "shape": list(capture.shape),
        "classes": capture.classes,
        "normalization": capture.normalization and [list(part) for part in capture.normalization],
        "model": capture.model,
        "defense": capture.defense,
        "aggregate": capture.aggregate,
        "metrics": metrics,
        "producer": capture.producer,
    }
    if capture.target is not None:
        content["target"] = {"shape": list(capture.target.shape), "kind": capture.target.kind}
    if capture.declared:
        content["declared"] = dict(capture.declared)
    return json.dumps(content, sort_keys=True, allow_nan=False)


def parse_document(text: str, where: str) -> dict[str, Any]:
    """The arguments of `Capture` that the document gives."""
    found = _table(_json(text, where), where)
    if missing := sorted(NEEDED - set(found)):
        raise ConfigError(f"{where}: {missing[0]}: is missing, add it")
    if strange := sorted(set(found) - KEYS):
        raise unknown("key", strange[0][:60], KEYS, where)
    if type(found["version"]) is not int or found["version"] not in READ:
        got, known = str(found["version"])[:20], " and ".join(map(str, READ))
        raise ConfigError(f"{where}: version: is {got}, this gradveil reads {known}, save it again")
    shape = _shape(found["shape"], f"{where}: shape")
    classes = whole(found["classes"], f"{where}: classes", 1, MOST_CLASSES)
    training = _training(found["training"], f"{where}: training", found["version"])
    if len(training.class_weights) not in (0, classes):
        got = len(training.class_weights)
        raise ConfigError(f"{where}: training.class_weights: has {got} numbers for {classes} classes, correct it")
    examples = _examples(found["examples"], f"{where}: examples")
    if training.for_examples(max(examples.values())).steps > MOST_STEPS:
        raise ConfigError(f"{where}: training.epochs: is more than {MOST_STEPS:,} steps, correct it")
    return {
        "round": whole(found["round"], f"{where}: round", 0, 2**31),
        "training": training,
        "examples": examples,
        "shape": shape,
        "classes": classes,
        "target": _target(found.get("target"), f"{where}: target", classes, shape),
        "normalization": _normalization(found.get("normalization"), f"{where}: normalization", shape[0]),
        "aggregate": whole(found.get("aggregate", 1), f"{where}: aggregate", 1, MOST_CLIENTS),
        "metrics": _metrics(found.get("metrics", {}), f"{where}: metrics"),
        "declared": _declared(found.get("declared", {}), f"{where}: declared"),
        **{key: _text(found.get(key, ""), f"{where}: {key}") for key in ("model", "defense", "producer")},
    }


def _json(text: str, where: str) -> Any:
    if len(text) > LONGEST:
        raise ConfigError(f"{where}: has {len(text):,} characters, the limit is {LONGEST:,}, leave metrics out")
    try:
        return json.loads(text, object_pairs_hook=without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is not JSON, {str(error)[:200]}, save it again") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def whole(value: Any, where: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        got = str(value)[:40]
        raise ConfigError(f"{where}: expected a whole number from {least} to {most:,}, got {got}, correct it")
    return value


def _number(value: Any, where: str, most: float = 1e30) -> float:
    if type(value) not in (int, float) or not abs(value) <= most:
        raise ConfigError(f"{where}: expected a finite number, got {str(value)[:40]}, correct it")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > 1000 or not value.isprintable():
        raise ConfigError(f"{where}: expected a printable text of at most 1000 characters, correct it")
    return value


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected a table, got {str(value)[:40]}, correct it")
    return value


def client_name(name: str, where: str) -> str:
    if not CLIENT.fullmatch(name):
        raise ConfigError(
            f"{where}: {name[:60]!r}: is no name for a client, use at most 100 letters, digits, '.', '_' and '-'"
        )
    return name


def _examples(value: Any, where: str) -> dict[str, int]:
    found = _table(value, where)
    if not 0 < len(found) <= MOST_CLIENTS:
        raise ConfigError(f"{where}: names {len(found):,} clients, expected 1 to {MOST_CLIENTS:,}, split the capture")
    return {client_name(name, where): whole(n, f"{where}.{name}", 0, MOST_EXAMPLES) for name, n in found.items()}


def _shape(value: Any, where: str) -> tuple[int, int, int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ConfigError(f"{where}: expected [channels, height, width], got {str(value)[:40]}, correct it")
    channels, height, width = (whole(side, where, 1, LARGEST_PICTURE) for side in value)
    if channels * height * width > LARGEST_PICTURE:
        raise ConfigError(f"{where}: {value} is a picture of more than {LARGEST_PICTURE:,} numbers, correct it")
    return channels, height, width


def _normalization(value: Any, where: str, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(part, list) for part in value):
        raise ConfigError(f"{where}: expected [mean, deviation] with a list each, or null, correct it")
    mean, deviation = (tuple(_number(one, where) for one in part) for part in value)
    if len(mean) != channels or len(deviation) != channels or min(deviation) <= 0:
        raise ConfigError(f"{where}: expected {channels} means and {channels} deviations above 0, correct it")
    return mean, deviation


def _target(value: Any, where: str, classes: int, picture: tuple[int, int, int]) -> Target | None:
    """Masks have the size of the pictures; what begins the shape are the classes."""
    if value is None:
        return None
    found = _table(value, where)
    if set(found) != {"shape", "kind"} or found["kind"] not in get_args(TargetKind):
        raise ConfigError(f"{where}: expected a shape and a kind of {', '.join(get_args(TargetKind))}, correct it")
    shape = found["shape"]
    if shape not in ([classes], [classes, *picture[1:]]):
        raise ConfigError(f"{where}: shape: expected {[classes]} or {[classes, *picture[1:]]}, correct it")
    return Target(shape=tuple(shape), kind=found["kind"])


def _loss(value: Any, where: str) -> Loss | OwnLoss:
    """A client's own is a name alone: no file that a capture names is ever run."""
    if value in get_args(Loss):
        return value
    if not isinstance(value, str) or len(value) > LONGEST_NAME or not OWN.fullmatch(value):
        known = ", ".join(get_args(Loss))
        raise ConfigError(f"{where}: expected one of {known} or FILE.py:NAME, got {str(value)[:40]!r}")
    return OwnLoss(value)


def _declared(value: Any, where: str) -> dict[str, str]:
    found = _table(value, where)
    if strange := sorted(set(found) - {"batchnorm"}):
        raise unknown("key", strange[0][:60], ["batchnorm"], where)
    return {name: _setting(name, one, "", f"{where}.{name}") for name, one in found.items()}


def _metrics(value: Any, where: str) -> dict[str, dict[str, float]]:
    return {client_name(name, where): _metrics_of(one, f"{where}.{name}") for name, one in _table(value, where).items()}


def _metrics_of(value: Any, where: str) -> dict[str, float]:
    found = _table(value, where)
    return {
        _text(k, where): math.nan if v is None else _number(v, f"{where}.{k[:60]}", LARGEST_FLOAT)
        for k, v in found.items()
    }


def parse_training(table: Mapping[str, Any], where: str) -> LocalTraining:
    """Settings of a local training by name, as a capture has them."""
    return _training(dict(table), where, VERSION)


def _training(value: Any, where: str, version: int) -> LocalTraining:
    found = _table(value, where)
    known = {one.name: one.default for one in fields(LocalTraining) if version > 1 or one.name in FIRST}
    if strange := sorted(set(found) - set(known)):
        raise unknown("key", strange[0][:60], known, where)
    settings = {name: _setting(name, v, known[name], f"{where}.{name}") for name, v in found.items()}
    try:
        return LocalTraining(**settings)
    except ConfigError as error:
        raise ConfigError(f"{where}.{error}") from error


def _setting(name: str, value: Any, default: Any, where: str) -> Any:
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise ConfigError(f"{where}: expected one of {', '.join(CHOICES[name])}, got {str(value)[:40]!r}")
        return value
    if name == "loss":
        return _loss(value, where)
    if name in LIMITS:
        return LIMITS[name](value, where)
    if isinstance(default, bool):
        if type(value) is not bool:
            raise ConfigError(f"{where}: expected true or false, got {str(value)[:40]}, correct it")
        return value
    return _at_least_zero(value, where)


def _at_least_zero(value: Any, where: str) -> float:
    number = _number(value, where)
    if number < 0:
        raise ConfigError(f"{where}: expected a number of at least 0, got {number}, correct it")
    return number


def _above_zero(value: Any, where: str) -> float:
    number = _number(value, where)
    if number <= 0:
        raise ConfigError(f"{where}: expected a number above 0, got {number}, correct it")
    return number


def _share(value: Any, where: str) -> float:
    number = _number(value, where)
    if not 0 <= number <= 1:
        raise ConfigError(f"{where}: expected a number from 0 to 1, got {number}, correct it")
    return number


def _below_one(value: Any, where: str) -> float:
    number = _share(value, where)
    if number == 1:
        raise ConfigError(f"{where}: expected a number below 1, got {number}, correct it")
    return number


def _weights(value: Any, where: str) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > MOST_CLASSES:
        raise ConfigError(f"{where}: expected a list with a number for each class, got {str(value)[:40]}, correct it")
    return tuple(_at_least_zero(one, where) for one in value)


LIMITS: Mapping[str, Callable[[Any, str], Any]] = {
    "steps": lambda value, where: whole(value, where, 1, MOST_STEPS),
    "rate": _above_zero,
    "epochs": lambda value, where: whole(value, where, 0, MOST_STEPS),
    "warmup": lambda value, where: whole(value, where, 0, MOST_STEPS),
    "decay_every": lambda value, where: whole(value, where, 1, MOST_STEPS),
    "class_weights": _weights,
    **dict.fromkeys(("beta1", "beta2", "smoothing"), _below_one),
    **dict.fromkeys(("dampening", "label_smoothing", "decay_factor"), _share),
    "batch_size": lambda value, where: None if value is None else whole(value, where, 1, MOST_EXAMPLES),
}
