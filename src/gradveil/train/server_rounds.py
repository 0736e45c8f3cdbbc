"""Rounds with a server in the middle, client by client (McMahan et al., 2017), and the server's arithmetic.

Which replies are left out, the mean of the others, the step along it: the reference for faster ways.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.train.client import Reply
from gradveil.train.clients import Clients
from gradveil.train.settings import Federation
from gradveil.train.state import Outcome, State, play_one_by_one

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


@dataclass(frozen=True)
class ServerRounds:
    """Everybody drawn for a round starts from the shared weights; the server takes the mean, by examples."""

    clients: Clients

    def block(self, state: State, rounds: int) -> tuple[State, list[Outcome]]:
        """The state after `rounds` rounds more."""
        return play_one_by_one(self.round, state, rounds)

    def most(self) -> int:
        """Rounds that are worth a block."""
        return 1

    def round(self, state: State) -> tuple[State, Outcome]:
        number = state.round + 1
        who = self.clients.draw(number)
        self.clients.residuals = dict(state.residuals)
        replies = self.clients.replies(who, dict.fromkeys(who, state.params), dict.fromkeys(who, state.running), number)
        good = {i: reply for i, reply in replies.items() if fits(reply, state.params)}
        names = self.clients.federation.names
        dropped = tuple(names[i] for i in who if i not in good)
        new = self.aggregate(state, list(good.values())) if good else None
        if new is None or not is_finite(new.params, new.velocity, new.running):
            return replace(state, round=number), Outcome(round=number, loss=math.nan, dropped=dropped, void=True)
        owed = {names[i]: dict(r.residual) for i, r in good.items() if r.residual is not None}
        loss = mean_loss(list(good.values()))
        return replace(new, residuals={**state.residuals, **owed}), Outcome(round=number, loss=loss, dropped=dropped)

    def aggregate(self, state: State, replies: Sequence[Reply]) -> State:
        weights = [float(reply.examples) for reply in replies]
        update = weighted_mean([reply.update for reply in replies], weights)
        federation = self.clients.federation
        progress = federation.progress(state.round + 1)
        params, velocity = server_step(state.params, state.velocity, update, federation, progress)
        running = weighted_mean([reply.statistics for reply in replies], weights) if state.running else {}
        return replace(state, round=state.round + 1, params=params, velocity=velocity, running=running)


def mean_loss(replies: Sequence[Reply]) -> float:
    weights = [float(reply.examples) for reply in replies]
    each = [{"loss": reply.loss.double()} for reply in replies]
    return weighted_mean(each, weights)["loss"].item()
