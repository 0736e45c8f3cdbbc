"""The pictures of many rounds at once, as their clients feed them: drawn on the CPU, moved once, gathered there.

Each client draws from its own stream what it would draw alone, so what is fed is what `client_reply` feeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.core.types import Batch
from gradveil.train.client import pictures_of, round_data, stream_of
from gradveil.train.clients import Clients
from gradveil.transforms.pipeline import crop_and_flip


@dataclass(frozen=True)
class RoundBatches:
    """What all clients of a round feed in `fedsgd`, [round, client and picture, ...]."""

    clients: Clients

    def rounds(self, first: int, count: int) -> Batch:
        each = [self.one_by_one(n) for n in range(first, first + count)] if self.needs_each else None
        if each is not None:
            return Batch(torch.stack([b.images for b in each]), torch.stack([b.labels for b in each]))
        turns = [(n, i) for n in range(first, first + count) for i in self.clients.draw(n)]
        images, labels = self.together(turns)
        return Batch(images.unflatten(0, (count, -1)), labels.unflatten(0, (count, -1)))

    @property
    def needs_each(self) -> bool:
        """Whether the defense acts on the data of each client as a whole."""
        return self.clients.defense.acts_at("data")

    def one_by_one(self, round: int) -> Batch:
        """Any defense: every client's batch by itself."""
        clients, fed = self.clients, []
        for i in clients.draw(round):
            name = clients.federation.names[i]
            data = round_data(clients.data_of(i), clients.federation, clients.defense, client=name, round=round)
            fed.append(clients.defense.batch(data, stream_of(clients.federation, round, name).at("client").rng()))
        return Batch(torch.cat([b.images for b in fed]), torch.cat([b.labels for b in fed]))

    def together(self, turns: Sequence[tuple[int, int]]) -> Batch:
        """All turns at once, as fast as the defense can do it."""
        data, settings = self.clients.data, self.clients.federation
        places = [self._places(n, i) for n, i in turns]
        at, sizes = torch.cat(places).to(data.images.device), [len(p) for p in places]
        streams = [stream_of(settings, n, settings.names[i]) for n, i in turns]
        images = data.images[at]
        if settings.augment:
            images = crop_and_flip(images, sizes, [stream.at("crop").rng() for stream in streams])
        fed, defense = Batch(images, data.labels[at]), self.clients.defense
        if not defense.acts_at("batch"):
            return fed
        return defense.batches(fed, sizes, [stream.at("client").rng() for stream in streams])

    def _places(self, round: int, client: int) -> Tensor:
        settings, count = self.clients.federation, self.clients.count(client)
        return self.clients.span(client).start + pictures_of(count, settings, settings.names[client], round)
