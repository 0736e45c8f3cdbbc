"""One step of a local optimizer as a pure function, the same as `torch.optim`'s to rounding and differentiable.

A client's round carries what it needs from step to step: the update so far and the optimizer's state. The update is
accumulated rather than read off the weights: w0 - (w0 - g) loses digits that closed-form attacks would see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gradveil.core.local_training import LocalTraining
from gradveil.core.types import Params, Update

Carry = dict[str, dict[str, Tensor]]  # `update`, and what the optimizer remembers; empty at first
Moved = tuple[Carry, Update]  # what it remembers, and the direction that the rate is multiplied with
CLIP_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


def start_of(params: Params, carry: Carry) -> Params:
    """The weights at which the next step begins."""
    update = carry.get("update")
    return params if update is None else {name: params[name] - update[name] for name in params}


def take_step(training: LocalTraining, number: int, carry: Carry, here: Params, gradient: Update) -> Carry:
    """What is carried after the step `number`, counted from 0, whose gradient at `here` is given."""
    if training.clip_gradients:
        gradient = clip_by_norm(gradient, training.clip_gradients)
    if training.weight_decay and training.optimizer != "adamw":
        gradient = {name: g + training.weight_decay * here[name] for name, g in gradient.items()}
    state, direction = OPTIMIZERS[training.optimizer](training, number, carry, gradient)
    if training.weight_decay and training.optimizer == "adamw":
        direction = {name: d + training.weight_decay * here[name] for name, d in direction.items()}
    return {**state, "update": _add(carry.get("update"), training.rate_at(number), direction)}


def move_by_sgd(training: LocalTraining, number: int, carry: Carry, gradient: Update) -> Moved:
    if not training.momentum:
        return {}, gradient
    velocity = _gather(carry.get("velocity"), training.momentum, gradient, 1 - training.dampening)
    ahead = (
        {name: g + training.momentum * velocity[name] for name, g in gradient.items()} if training.nesterov else None
    )
    return {"velocity": velocity}, ahead or velocity


def move_by_adam(training: LocalTraining, number: int, carry: Carry, gradient: Update) -> Moved:
    """Adam, and AdamW but for its weight decay."""
    mean = _average(carry.get("mean"), training.beta1, gradient)
    square = _average(carry.get("square"), training.beta2, _squares(gradient))
    first, second = 1 - training.beta1 ** (number + 1), math.sqrt(1 - training.beta2 ** (number + 1))
    moved = {n: (m / first) / (root(square[n]) / second + training.least) for n, m in mean.items()}
    return {"mean": mean, "square": square}, moved


def move_by_rmsprop(training: LocalTraining, number: int, carry: Carry, gradient: Update) -> Moved:
    square = _average(carry.get("square"), training.smoothing, _squares(gradient))
    scaled = {name: g / (root(square[name]) + training.least) for name, g in gradient.items()}
    if not training.momentum:
        return {"square": square}, scaled
    velocity = _gather(carry.get("velocity"), training.momentum, scaled, 1.0)
    return {"square": square, "velocity": velocity}, velocity


def move_by_adagrad(training: LocalTraining, number: int, carry: Carry, gradient: Update) -> Moved:
    square = _gather(carry.get("square"), 1.0, _squares(gradient), 1.0)
    return {"square": square}, {name: g / (root(square[name]) + training.least) for name, g in gradient.items()}


OPTIMIZERS: Mapping[str, Callable[[LocalTraining, int, Carry, Update], Moved]] = {
    "sgd": move_by_sgd,
    "adam": move_by_adam,
    "adamw": move_by_adam,
    "rmsprop": move_by_rmsprop,
    "adagrad": move_by_adagrad,
}


def root(square: Tensor) -> Tensor:
    """The square root with slope 0 at 0: what is divided by it is 0 there too, so that its own slope is all there is.

    torch's slope is infinite there, and times that of the square, which is 0, no number.
    """
    there = square > 0
    return torch.where(there, torch.where(there, square, 1.0).sqrt(), 0.0)


def clip_by_norm(gradient: Update, most: float) -> Update:
    """As torch.nn.utils.clip_grad_norm_, over all parameters together."""
    norm = root(torch.stack([g.square().sum() for g in gradient.values()]).sum())
    factor = (most / (norm + CLIP_EPSILON)).clamp_max(1.0)
    return {name: g * factor for name, g in gradient.items()}


def impulses(training: LocalTraining) -> list[float]:
    """Of a linear training: by how much the update grows with the gradient of each of its steps.

    >>> impulses(LocalTraining(steps=2, momentum=0.5, rate=0.1))
    [0.15000000000000002, 0.1]
    """
    momentum, tails = training.momentum, [0.0]
    for step in reversed(range(training.steps)):
        tails.append(training.rate_at(step) + momentum * tails[-1])
    tails = tails[:0:-1]
    shares = [1.0, *[1 - training.dampening] * (training.steps - 1)] if momentum else [1.0] * training.steps
    if not training.nesterov:
        return [share * tail for share, tail in zip(shares, tails, strict=True)]
    return [training.rate_at(step) + momentum * tails[step] for step in range(training.steps)]


def _add(update: Update | None, rate: float, direction: Update) -> dict[str, Tensor]:
    scaled = dict(direction) if rate == 1.0 else {name: rate * g for name, g in direction.items()}
    return scaled if update is None else {name: update[name] + scaled[name] for name in scaled}


def _gather(before: Update | None, kept: float, new: Update, share: float) -> dict[str, Tensor]:
    """What was before, as far as it is kept, and a share of what is new; at first all that is new."""
    if before is None:
        return dict(new)
    return {
        n: (before[n] if kept == 1.0 else kept * before[n]) + (x if share == 1.0 else share * x) for n, x in new.items()
    }


def _average(before: Update | None, kept: float, new: Update) -> dict[str, Tensor]:
    """A running average that begins at 0."""
    return {n: (1 - kept) * x if before is None else kept * before[n] + (1 - kept) * x for n, x in new.items()}


def _squares(gradient: Update) -> dict[str, Tensor]:
    return {name: g * g for name, g in gradient.items()}
