"""All clients of a federation, and their replies to a round: one by one, or in stacks of equal sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import accumulate, groupby

import torch
from torch import Generator, Tensor, nn
from torch.func import vmap

from gradveil.core.client import gradient_of, take_steps
from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Params, Update
from gradveil.train.client import Reply, Statistics, client_reply, last_loss, move_statistics, round_data, stream_of
from gradveil.train.fedprox import local_optimizer
from gradveil.train.settings import Federation

Stacked = dict[str, torch.Tensor]


def can_stack(defense: Defense, federation: Federation) -> bool:
    return not defense.acts_at("gradient") and not federation.error_feedback and not federation.goes_alone


def stack_replies(
    model: nn.Module,
    params: Sequence[Params],
    data: Sequence[Batch],
    federation: Federation,
    defense: Defense,
    *,
    clients: Sequence[str],
    round: int,
    progress: float,
    running: Sequence[Statistics],
) -> list[Reply]:
    """The replies of clients with equally many pictures: `client_reply` up to rounding."""
    named = zip(data, clients, strict=True)
    each = [round_data(d, federation, defense, client=c, round=round) for d, c in named]
    together = Batch(torch.stack([one.images for one in each], 1), torch.stack([one.labels for one in each], 1))
    streams = tuple(stream_of(federation, round, client).at("client").rng() for client in clients)
    sent = stack_tables(params)
    around, training = local_optimizer(sent, federation), federation.local_training(len(each[0].images), progress)
    gradient = around(vmap(gradient_of(model, training)))

    def feed(batch: Batch) -> Batch:
        return feed_each(defense, batch, streams)

    statistics = stack_tables(running) if federation.batchnorm == "batch-shared" else {}
    for number, step in enumerate(take_steps(sent, together, training, feed, gradient)):
        if statistics:
            statistics = vmap(lambda s, p, x, n=number: move_statistics(s, model, p, x, n))(
                statistics, step.params, step.batch.images
            )
    losses = vmap(lambda p, b: last_loss(model, p, b, federation))(step.params, step.batch)
    updates = [{name: u[i] for name, u in step.update.items()} for i in range(len(clients))]
    return [
        Reply(
            update=defense.update(update, stream),
            statistics={key: s[i] for key, s in statistics.items()},
            examples=len(each[i].images),
            loss=losses[i],
        )
        for i, (update, stream) in enumerate(zip(updates, streams, strict=True))
    ]


def feed_each(defense: Defense, batch: Batch, streams: Sequence[Generator]) -> Batch:
    """`Defense.batch` for every client of a stack, with the client's own stream."""
    each = [Batch(batch.images[:, i], batch.labels[:, i]) for i in range(len(streams))]
    fed = [defense.batch(one, stream) for one, stream in zip(each, streams, strict=True)]
    return Batch(torch.stack([one.images for one in fed]), torch.stack([one.labels for one in fed]))


def stack_tables(each: Sequence[Params]) -> Stacked:
    """[client, ...] by name."""
    return {name: torch.stack([one[name] for one in each]) for name in each[0]} if each else {}


# on a CPU stacks pay for small models with small batches alone: benchmarks/federation.py
SMALL, SMALL_BATCH = 50_000, 8  # parameters, pictures
ON_A_CPU, ON_A_GPU = 16, 32  # clients of a stack


def draw_clients(federation: Federation, round: int) -> list[int]:
    """Who takes part in a round, in order."""
    count, wanted = federation.clients, federation.per_round
    if wanted is None or wanted == count:
        return list(range(count))
    rng = Seed(federation.seed).at("participants", round).rng()
    return sorted(torch.randperm(count, generator=rng)[:wanted].tolist())


@dataclass(kw_only=True)
class Clients:
    """Everybody's pictures, the model in client mode, and what error feedback remembers of each client."""

    model: nn.Module
    data: Batch  # is dealt out: client after client, so that one client's are a view
    shares: InitVar[tuple[Tensor, ...]]  # whose pictures are whose
    federation: Federation
    defense: Defense
    chunk: int | None = None  # clients of a stack; 1: one by one; None: what pays
    residuals: dict[str, Update] = field(default_factory=dict)
    ends: tuple[int, ...] = field(init=False)  # where each client's pictures end

    def __post_init__(self, shares: tuple[Tensor, ...]) -> None:
        self.ends = tuple(accumulate(map(len, shares)))
        if shares:
            dealt = torch.cat(shares).to(self.data.images.device)
            self.data = Batch(*(x[dealt] for x in self.data))

    def draw(self, round: int) -> list[int]:
        """Who takes part in a round, in order."""
        return draw_clients(self.federation, round)

    def span(self, client: int) -> slice:
        """Where a client's pictures lie."""
        return slice(self.ends[client - 1] if client else 0, self.ends[client])

    def data_of(self, client: int) -> Batch:
        return Batch(*(x[self.span(client)] for x in self.data))

    def count(self, client: int) -> int:
        return self.span(client).stop - self.span(client).start

    def replies(
        self, who: Sequence[int], params: Mapping[int, Params], running: Mapping[int, Statistics], round: int
    ) -> dict[int, Reply]:
        """Of each in `who`, from the weights that it has."""
        if self.at_once() == 1:
            return {i: self.reply(i, params[i], running[i], round) for i in who}
        found: dict[int, Reply] = {}
        for _, same in groupby(sorted(who, key=self._size), key=self._size):
            alike = list(same)
            for first in range(0, len(alike), self.at_once()):
                found |= self._stack(alike[first : first + self.at_once()], params, running, round)
        return {i: found[i] for i in who}

    def _size(self, client: int) -> int:
        """Equal where two clients take the same steps on batches of the same sizes."""
        count = self.count(client)
        return min(count, self.federation.batch_size) if self.federation.method == "fedsgd" else count

    def at_once(self) -> int:
        if not can_stack(self.defense, self.federation):
            return 1
        if self.chunk is not None:
            return self.chunk
        if self.data.images.is_cuda:
            return ON_A_GPU
        small = sum(p.numel() for p in self.model.parameters()) < SMALL
        return ON_A_CPU if small and self.federation.batch_size <= SMALL_BATCH else 1

    def reply(self, client: int, params: Params, running: Statistics, round: int) -> Reply:
        name = self.federation.names[client]
        return client_reply(
            self.model,
            params,
            self.data_of(client),
            self.federation,
            self.defense,
            client=name,
            round=round,
            progress=self.federation.progress(round),
            running=running,
            residual=self.residuals.get(name),
        )

    def _stack(
        self, who: Sequence[int], params: Mapping[int, Params], running: Mapping[int, Statistics], round: int
    ) -> dict[int, Reply]:
        replies = stack_replies(
            self.model,
            [params[i] for i in who],
            [self.data_of(i) for i in who],
            self.federation,
            self.defense,
            clients=[self.federation.names[i] for i in who],
            round=round,
            progress=self.federation.progress(round),
            running=[running[i] for i in who],
        )
        return dict(zip(who, replies, strict=True))
