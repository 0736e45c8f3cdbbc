"""The server's arithmetic: which replies are left out, the mean of the others, and the step along it."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.train.client import Reply
from gradveil.train.settings import Federation

Tensors = Mapping[str, Tensor]


def is_finite(*tables: Tensors) -> bool:
    """Whether every number in all of these is one."""
    each = [x.isfinite().all() for table in tables for x in table.values()]
    return not each or bool(torch.stack(each).all())


def fits(reply: Reply, params: Tensors) -> bool:
    """Whether a reply speaks of this model: every name, every shape, all numbers finite."""
    shapes = {name: tuple(u.shape) for name, u in reply.update.items()}
    if shapes != {name: tuple(p.shape) for name, p in params.items()}:
        return False
    return is_finite(reply.update, reply.statistics)


def weighted_mean(each: Sequence[Tensors], weights: Sequence[float]) -> dict[str, Tensor]:
    """By name, over clients. One client after the other, so that no more than one sum is held."""
    total, mean = sum(weights), {name: torch.zeros_like(x) for name, x in each[0].items()}
    for one, weight in zip(each, weights, strict=True):
        for name, x in one.items():
            mean[name] += x * (weight / total)
    return mean


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent as in torch, on lists of tensors and in place; the rate may lie on the device.

    Many tensors go through one kernel: torch's own optimizers use these functions and torch does not export them.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @classmethod
    def of(cls, federation: Federation) -> Sgd:
        return cls(momentum=federation.momentum, nesterov=federation.nesterov, weight_decay=federation.weight_decay)

    @torch.no_grad()
    def step(self, params: list[Tensor], gradient: Sequence[Tensor], velocity: Sequence[Tensor], rate: Tensor) -> None:
        direction, speed = list(gradient), list(velocity)
        if self.weight_decay:
            direction = torch._foreach_add(direction, params, alpha=self.weight_decay)
        if self.momentum:
            torch._foreach_mul_(speed, self.momentum)
            torch._foreach_add_(speed, direction)
            direction = torch._foreach_add(direction, speed, alpha=self.momentum) if self.nesterov else speed
        torch._foreach_sub_(params, torch._foreach_mul(direction, rate))


def server_step(
    params: Tensors, velocity: Tensors, update: Tensors, federation: Federation, progress: float
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and velocity after the server's step; what was given stays as it was."""
    if federation.method != "fedsgd":
        return {name: p - update[name] for name, p in params.items()}, dict(velocity)
    new, moving = ({name: x.clone() for name, x in table.items()} for table in (params, velocity))
    names, like = list(params), next(iter(params.values()))
    rate = torch.tensor(federation.rate_at(progress), dtype=like.dtype, device=like.device)
    speeds = [moving[n] for n in names] if moving else []
    Sgd.of(federation).step([new[n] for n in names], [update[n] for n in names], speeds, rate)
    return new, moving


def zero_velocity(params: Tensors, federation: Federation) -> dict[str, Tensor]:
    """The server's velocity before the first round; none where the server has no momentum."""
    if federation.method != "fedsgd" or not federation.momentum:
        return {}
    return {name: torch.zeros_like(p) for name, p in params.items()}
