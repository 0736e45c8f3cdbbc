"""Rounds with a server in the middle, client by client (McMahan et al., 2017): the reference for faster ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradveil.train.aggregate import fits, is_finite, server_step, weighted_mean
from gradveil.train.client import Reply
from gradveil.train.clients import Clients
from gradveil.train.state import Outcome, State, play_one_by_one


@dataclass(frozen=True)
class ServerRounds:
    """Everybody drawn for a round starts from the shared weights; the server takes the mean, by examples."""

    clients: Clients

    def block(self, state: State, rounds: int) -> tuple[State, list[Outcome]]:
        """So many rounds on."""
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
