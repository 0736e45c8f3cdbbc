"""Rounds without a server (Lian et al., 2017): every node steps on its own weights and mixes with its neighbors.

The mixing weights are Metropolis': symmetric, so that the mean of all nodes moves by the mean of their steps, as a
server's model would. Differs from algorithm 2 of ATS, where neighbors share gradients: nodes would drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.train.client import Reply
from gradveil.train.clients import Clients, stack_tables
from gradveil.train.server_rounds import fits, is_finite, mean_loss, server_step
from gradveil.train.settings import Federation, neighbors_of
from gradveil.train.state import Outcome, State, Table, play_one_by_one


def links_of(federation: Federation, round: int) -> Tensor:
    """Who talks to whom in a round, [node, node] of truth values, symmetric."""
    kind, number = neighbors_of(federation.neighbors)
    count = federation.clients
    links = torch.zeros(count, count, dtype=torch.bool)
    if kind == "complete":
        links |= True
    elif kind == "ring":
        here = torch.arange(count)
        links[here, (here + 1) % count] = True
    else:
        rng = Seed(federation.seed).at("neighbors", round).rng()
        for node in range(count):
            others = torch.randperm(count, generator=rng)
            links[node, others[others != node][:number]] = True
    links = links | links.T
    return links.fill_diagonal_(False)


def mixing_weights(links: Tensor, silent: Collection[int] = ()) -> Tensor:
    """Metropolis weights [node, node], each row and each column with the sum 1. A silent node keeps to itself."""
    links = links.clone()
    for node in silent:
        links[node] = links[:, node] = False
    degree = links.sum(1).double()
    weights = links / (1 + torch.maximum(degree[:, None], degree))
    return weights + torch.diag(1 - weights.sum(1))


@dataclass(frozen=True)
class Gossip:
    """The nodes' rounds; a state's tensors have a node axis in front."""

    clients: Clients

    def block(self, state: State, rounds: int) -> tuple[State, list[Outcome]]:
        return play_one_by_one(self.round, state, rounds)

    def most(self) -> int:
        return 1

    def round(self, state: State) -> tuple[State, Outcome]:
        number, federation = state.round + 1, self.clients.federation
        nodes = {i: node_of(state, i) for i in range(federation.clients)}
        params, running = ({i: getattr(node, kind) for i, node in nodes.items()} for kind in ("params", "running"))
        self.clients.residuals = dict(state.residuals)
        replies = self.clients.replies(list(nodes), params, running, number)
        stepped = {i: new for i, reply in replies.items() if (new := self.step_node(nodes[i], reply)) is not None}
        silent = [i for i in nodes if i not in stepped]
        dropped = tuple(federation.names[i] for i in silent)
        if not stepped:
            return replace(state, round=number), Outcome(round=number, loss=math.nan, dropped=dropped, void=True)
        residuals = {federation.names[i]: dict(r.residual) for i, r in replies.items() if i in stepped and r.residual}
        after = mix_nodes(
            [stepped.get(i, nodes[i]) for i in nodes], mixing_weights(links_of(federation, number), silent)
        )
        after = replace(after, round=number, residuals={**state.residuals, **residuals})
        return after, Outcome(round=number, loss=mean_loss([replies[i] for i in stepped]), dropped=dropped)

    def step_node(self, node: State, reply: Reply) -> State | None:
        """The node after its own step; None if that makes no sense."""
        federation = self.clients.federation
        if not fits(reply, node.params):
            return None
        progress = federation.progress(node.round + 1)
        params, velocity = server_step(node.params, node.velocity, reply.update, federation, progress)
        new = replace(node, params=params, velocity=velocity, running=dict(reply.statistics))
        return new if is_finite(params, velocity) else None


def node_of(state: State, node: int) -> State:
    """One node's part of a state."""
    tables = (at(table, node) for table in (state.params, state.running, state.velocity))
    params, running, velocity = tables
    return State(round=state.round, params=params, running=running, velocity=velocity)


def mix_nodes(nodes: Sequence[State], weights: Tensor) -> State:
    """All nodes after they have mixed weights and statistics; velocities stay their own."""
    params, running = (
        mix_table(stack_tables([getattr(n, kind) for n in nodes]), weights) for kind in ("params", "running")
    )
    velocity = stack_tables([node.velocity for node in nodes])
    return State(round=nodes[0].round, params=params, running=running, velocity=velocity)


def at(table: Table, node: int) -> Table:
    return {name: x[node] for name, x in table.items()}


def mix_table(table: Table, weights: Tensor) -> Table:
    return {name: torch.einsum("ij,j...->i...", weights.to(x), x) for name, x in table.items()}


def copy_to_nodes(state: State, nodes: int) -> State:
    """The same weights for every node."""
    params, running, velocity = (stack_tables([t] * nodes) for t in (state.params, state.running, state.velocity))
    return replace(state, params=params, running=running, velocity=velocity)


def mean_of(table: Table) -> Table:
    return {name: x.mean(0) for name, x in table.items()}
