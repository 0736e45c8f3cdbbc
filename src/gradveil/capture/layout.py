"""Whether the tensors of a capture can be what they are called: names, shapes and types, before one is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from gradveil.capture.document import client_name
from gradveil.capture.format import LABELS, STATISTICS, TENSOR, UPDATES, WEIGHTS
from gradveil.core.errors import ConfigError
from gradveil.core.target import Target

FLOATS, WHOLES = {"F64", "F32", "F16", "BF16"}, {"I64", "I32"}
MOST_TENSORS, LARGEST = 1_000_000, 2**30  # bytes of one file: all of it is held in memory
MOST_AXES = 8
RUNNING = {"mean": "running_mean", "var": "running_var"}


class Described(NamedTuple):
    """A tensor of the file before it is read."""

    dtype: str
    shape: tuple[int, ...]


Sorted = dict[str, dict[str, dict[str, Described]]]  # kind -> client, "" for the server's -> name


def check_layout(tensors: Mapping[str, Described], document: Mapping[str, Any], where: str) -> Sorted:
    """The tensors by kind and client."""
    found: Sorted = {WEIGHTS: {}, UPDATES: {}, STATISTICS: {}, LABELS: {}}
    for full, one in tensors.items():
        kind, client, name = _places(full, where)
        if len(one.shape) > MOST_AXES:
            raise ConfigError(f"{where}: {full}: has {len(one.shape)} axes, the limit is {MOST_AXES}, correct it")
        found[kind].setdefault(client, {})[name] = one
    weights = found[WEIGHTS].get("", {})
    if not weights or not found[UPDATES]:
        missing = UPDATES if weights else WEIGHTS
        raise ConfigError(f"{where}: {missing}/: no tensor is called so, save the model as sent and the updates")
    _check_weights(weights, where)
    _check_clients(found, set(document["examples"]), where)
    for client, update in found[UPDATES].items():
        _check_update(update, weights, f"{where}: {UPDATES}/{client}")
    _check_same(found[UPDATES], where)
    for client, statistics in found[STATISTICS].items():
        _check_statistics(statistics, weights, f"{where}: {STATISTICS}/{client}")
    for client, labels in found[LABELS].items():
        _check_labels(labels[""], document, client, f"{where}: {LABELS}/{client}")
    return found


def _places(full: str, where: str) -> tuple[str, str, str]:
    kind, _, rest = full.partition("/")
    client, _, name = rest.partition("/") if kind in (UPDATES, STATISTICS) else ("", "", rest)
    if kind == LABELS:
        client, name = rest, ""
    known = kind in (WEIGHTS, UPDATES, STATISTICS, LABELS)
    if not known or (kind != LABELS and not TENSOR.fullmatch(name)) or ".." in name:
        raise ConfigError(
            f"{where}: {full[:80]!r}: is no name of a capture, expected weights/NAME, updates/CLIENT/NAME, "
            "statistics/CLIENT/NAME or labels/CLIENT, rename it"
        )
    return kind, client_name(client, f"{where}: {kind}") if kind != WEIGHTS else "", name


def _check_weights(weights: Mapping[str, Described], where: str) -> None:
    for name, one in weights.items():
        if one.dtype not in FLOATS | WHOLES:
            raise ConfigError(f"{where}: {WEIGHTS}/{name}: is of type {one.dtype}, save it as F32")


def _check_clients(found: Sorted, listed: set[str], where: str) -> None:
    updates = set(found[UPDATES])
    if strange := sorted(updates ^ listed):
        has, has_not = ("an update", "number in examples") if strange[0] in updates else ("a number", "update")
        raise ConfigError(f"{where}: examples: {strange[0]} has {has} but no {has_not}, name each client in both")
    for kind in (STATISTICS, LABELS):
        if strange := sorted(set(found[kind]) - updates):
            raise ConfigError(f"{where}: {kind}/{strange[0]}: has no update, name each client alike")


def _check_update(update: Mapping[str, Described], weights: Mapping[str, Described], where: str) -> None:
    for name, one in update.items():
        if name not in weights:
            raise ConfigError(f"{where}/{name}: no weight is called so, {nearest(name, one.shape, weights)}")
        if one.shape != weights[name].shape:
            problem = f"{short(one.shape)}, the weight has {short(weights[name].shape)}"
            raise ConfigError(f"{where}/{name}: has the shape {problem}, save one update for each client, unstacked")
        if one.dtype not in FLOATS:
            raise ConfigError(f"{where}/{name}: is of type {one.dtype}, save it as F32")


def _check_same(updates: Mapping[str, Mapping[str, Described]], where: str) -> None:
    first, *others = updates
    for other in others:
        if strange := sorted(set(updates[first]) ^ set(updates[other])):
            problem = f"{strange[0]} is in the update of only one of {first} and {other}"
            raise ConfigError(f"{where}: {UPDATES}/{other}: {problem}, save the same parameters for all")


def _check_statistics(statistics: Mapping[str, Described], weights: Mapping[str, Described], where: str) -> None:
    for name, one in statistics.items():
        buffer = buffer_of(name)
        if buffer not in weights or one.shape != weights[buffer].shape:
            raise ConfigError(f"{where}/{name}: no buffer of the model has this name and shape, leave it out")
        if one.dtype not in FLOATS | WHOLES:
            raise ConfigError(f"{where}/{name}: is of type {one.dtype}, save it as F32")


def buffer_of(name: str) -> str:
    """`bn1.mean` is short for `bn1.running_mean`."""
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{RUNNING[kind]}" if kind in RUNNING else name


def _check_labels(labels: Described, document: Mapping[str, Any], client: str, where: str) -> None:
    count = document["examples"][client] * document["aggregate"]
    target = document["target"] or Target(shape=(document["classes"],))
    hard, soft = target.class_places(count), (count, *target.shape)
    if not (labels.dtype in WHOLES and labels.shape == hard) and not (labels.dtype in FLOATS and labels.shape == soft):
        raise ConfigError(
            f"{where}: is {labels.dtype} of {short(labels.shape)}, expected I64 of {hard} or F32 of {soft}, correct it"
        )


def nearest(name: str, shape: tuple[int, ...], known: Mapping[str, Any]) -> str:
    """What the tensor may have been called: the nearest name, or the only one of its shape."""
    if near := get_close_matches(name, list(known)[:1000], n=1):
        return f"did you mean {near[0]!r}? Rename it"
    of_shape = [other for other, one in known.items() if tuple(one.shape) == shape]
    if len(of_shape) == 1:
        return f"only {of_shape[0]!r} has its shape {short(shape)}, rename it"
    return "the model was changed or its layers renamed, save both from the same model"


def short(shape: Iterable[int]) -> str:
    return str(tuple(shape))[:60]
