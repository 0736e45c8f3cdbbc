"""A round of NVFlare as a capture: the model as sent and what each client sent back, from files of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gradveil.capture.format import Capture, Normalization
from gradveil.capture.mode import list_moved
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining
from gradveil.models.buffers import is_statistic
from gradveil.nvflare.fobs import Exchanged, read_exchanged

FULL, DIFFERENCE = "WEIGHTS", "WEIGHT_DIFF"
STEPS, ROUND, ALGORITHM = "NUM_STEPS_CURRENT_ROUND", "current_round", "PROCESSED_ALGORITHM"
MOST_STEPS = 100_000


def convert(
    sent: str | Path,
    updates: Mapping[str, str | Path],
    *,
    shape: tuple[int, int, int],
    classes: int,
    examples: Mapping[str, int] | None = None,
    training: LocalTraining | None = None,
    normalization: Normalization | None = None,
    model: str = "",
    defense: str = "",
) -> Capture:
    """The capture of one round; ConfigError names the file that is at fault.

    Args:
        sent: File with the weights that the clients received (a DXO of kind WEIGHTS, or a shareable with one).
        updates: By client, the file with its answer (kind WEIGHT_DIFF, or WEIGHTS after the training).
        shape: Channels, height and width of a picture.
        classes: Number of logits.
        examples: By client, its number of pictures; NVFlare has no word for it (default: not told).
        training: What a client does in the round (default: SGD with as many steps as the clients declare).
        normalization: Mean and deviation inside the model's first layer.
        model: Name in `MODELS`, or empty.
        defense: What the clients say they ran, such as `percentile:gamma=0.01`.
    """
    weights = _tensors(_of_kind(read_exchanged(sent), (FULL,), sent), sent)
    answers = {client: _of_kind(read_exchanged(path), (FULL, DIFFERENCE), path) for client, path in updates.items()}
    if not answers:
        raise ConfigError("must name at least one client and its file", key="updates")
    after = {client: _after(weights, answer, updates[client]) for client, answer in answers.items()}
    stated = training or LocalTraining(steps=_steps(answers))
    back = {client: {n: t for n, t in tensors.items() if is_statistic(n)} for client, tensors in after.items()}
    moved = any(list_moved(weights, statistics) for statistics in back.values())
    seen = replace(stated, batchnorm="batch-shared") if moved else stated
    return Capture(
        weights=weights,
        updates={c: _update(weights, tensors) for c, tensors in after.items()},
        statistics={client: statistics for client, statistics in back.items() if statistics},
        round=_round(answers),
        training=seen,
        examples={client: (examples or {}).get(client, 0) for client in answers},
        shape=shape,
        classes=classes,
        normalization=normalization,
        model=model,
        defense=defense,
        metrics={client: _numbers(answer.meta) for client, answer in answers.items()},
        producer="nvflare",
        declared={} if seen == stated else {"batchnorm": stated.batchnorm},
    )


def _of_kind(found: Exchanged, kinds: tuple[str, ...], path: str | Path) -> Exchanged:
    if algorithm := found.meta.get(ALGORITHM):
        raise ConfigError(f"{path}: is encrypted ({str(algorithm)[:60]}), the server sees the sums alone")
    if found.kind not in kinds:
        raise ConfigError(f"{path}: is of kind {found.kind[:60]}, expected {' or '.join(kinds)}")
    return found


def _tensors(found: Exchanged, path: str | Path) -> dict[str, Tensor]:
    for name, value in found.data.items():
        if not isinstance(value, Tensor):
            raise ConfigError(f"{path}: {name[:80]}: is no array, write the DXO with its arrays")
    return dict(found.data)


def _after(weights: Mapping[str, Tensor], answer: Exchanged, path: str | Path) -> dict[str, Tensor]:
    """The client's weights after its training. Of a difference buffers are differences too."""
    tensors = _tensors(answer, path)
    for name, tensor in tensors.items():
        if name not in weights or weights[name].shape != tensor.shape:
            raise ConfigError(f"{path}: {name[:80]}: is no weight of the model that was sent, or has another shape")
    if answer.kind == FULL:
        return tensors
    # in double precision: what float32 loses of a small difference of large weights was not lost on the way
    return {
        n: (weights[n].double() + t.double()) if t.is_floating_point() else weights[n] + t for n, t in tensors.items()
    }


def _update(weights: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = [name for name, tensor in after.items() if tensor.is_floating_point() and not is_statistic(name)]
    return {name: (weights[name].double() - after[name].double()).to(weights[name].dtype) for name in names}


def _steps(answers: Mapping[str, Exchanged]) -> int:
    stated = {client: answer.meta.get(STEPS, 1) for client, answer in answers.items()}
    for client, steps in stated.items():
        if type(steps) is not int or not 1 <= steps <= MOST_STEPS:
            raise ConfigError(f"{client}: {STEPS} is {str(steps)[:40]}, give `training` instead")
    if len(set(stated.values())) > 1:
        raise ConfigError(f"clients took {min(stated.values())} to {max(stated.values())} steps, convert them apart")
    return next(iter(stated.values()))


def _round(answers: Mapping[str, Exchanged]) -> int:
    found = next((answer.meta[ROUND] for answer in answers.values() if type(answer.meta.get(ROUND)) is int), 0)
    return max(0, found)


def _numbers(meta: Mapping[str, Any]) -> dict[str, float]:
    """What came along: of the table of metrics too."""
    inner = meta.get("initial_metrics")
    pairs = [*meta.items(), *(inner.items() if isinstance(inner, Mapping) else ())]
    return {key: float(value) for key, value in pairs if isinstance(value, bool | int | float)}
