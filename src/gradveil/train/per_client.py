"""Many clients at once: `take_steps` with a client axis in front of every tensor, and the gradient under vmap.

Pictures lie [example, client, ...], since `take_steps` cuts minibatches off the first axis. Everything that draws is
called client by client with the client's own stream. For defenses around the gradient there is the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, nn
from torch.func import vmap

from gradveil.core.client import gradient_of, take_steps
from gradveil.core.defense import Defense
from gradveil.core.types import Batch, Params
from gradveil.train.client import Reply, Statistics, last_loss, move_statistics, round_data, stream_of
from gradveil.train.fedprox import local_optimizer
from gradveil.train.settings import Federation

Stacked = dict[str, torch.Tensor]


def can_stack(defense: Defense, federation: Federation) -> bool:
    return not defense.acts_at("gradient") and not federation.error_feedback


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
    around, training = local_optimizer(sent, federation.local_training(len(each[0].images), progress), federation)
    gradient = around(vmap(gradient_of(model, training.loss)))

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
