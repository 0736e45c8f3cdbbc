"""The pictures of many rounds at once, as their clients feed them: drawn on the CPU, moved once, gathered there.

Each client draws from its own stream what it would draw alone, so what is fed is what `client_reply` feeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from gradveil.core.types import Batch
from gradveil.defenses.ats import Ats
from gradveil.train.client import pictures_of, round_data, stream_of
from gradveil.train.clients import Clients
from gradveil.transforms.draw import Draw
from gradveil.transforms.pipeline import CropAndFlip

AT_ONCE = 4096  # pictures that are cropped and transformed at once


@dataclass(frozen=True)
class Feed:
    """What all clients of a round feed in `fedsgd`, [round, client and picture, ...]."""

    clients: Clients

    def rounds(self, first: int, count: int) -> Batch:
        each = [self.one_by_one(n) for n in range(first, first + count)] if self.needs_each else None
        if each is not None:
            return Batch(torch.stack([b.images for b in each]), torch.stack([b.labels for b in each]))
        turns = [(n, i) for n in range(first, first + count) for i in self.clients.drawn(n)]
        images, labels = self.together(turns)
        return Batch(images.unflatten(0, (count, -1)), labels.unflatten(0, (count, -1)))

    @property
    def needs_each(self) -> bool:
        """Whether the defense acts on a batch as a whole, as far as we know."""
        defense = self.clients.defense
        return defense.acts_at("data") or (defense.acts_at("batch") and not isinstance(defense, Ats))

    def one_by_one(self, round: int) -> Batch:
        """Any defense: every client's batch by itself."""
        clients, fed = self.clients, []
        for i in clients.drawn(round):
            name = clients.federation.names[i]
            own = round_data(clients.own(i), clients.federation, clients.defense, client=name, round=round)
            fed.append(clients.defense.batch(own, stream_of(clients.federation, round, name).at("client").rng()))
        return Batch(torch.cat([b.images for b in fed]), torch.cat([b.labels for b in fed]))

    def together(self, turns: Sequence[tuple[int, int]]) -> Batch:
        """Crops, flips and a policy of ATS act picture by picture: all turns at once."""
        data, settings = self.clients.data, self.clients.federation
        places = [self._places(n, i) for n, i in turns]
        at, sizes = torch.cat(places).to(data.images.device), [len(p) for p in places]
        streams = [stream_of(settings, n, settings.names[i]) for n, i in turns]
        images = data.images[at]
        if settings.augment:
            images = cropped(images, sizes, [stream.at("crop").rng() for stream in streams])
        if isinstance(defense := self.clients.defense, Ats):
            images = transformed(images, defense, sizes, [stream.at("client").rng() for stream in streams])
        return Batch(images, data.labels[at])

    def _places(self, round: int, client: int) -> Tensor:
        settings, count = self.clients.federation, self.clients.count(client)
        return self.clients.span(client).start + pictures_of(count, settings, settings.names[client], round)


def cropped(images: Tensor, sizes: Sequence[int], rngs: Sequence[Generator]) -> Tensor:
    drawn = [CropAndFlip.draw(size, rng) for size, rng in zip(sizes, rngs, strict=True)]
    whole = [torch.cat(parts).to(images.device).split(AT_ONCE) for parts in zip(*drawn, strict=True)]
    pieces = zip(images.split(AT_ONCE), *whole, strict=True)
    return torch.cat([CropAndFlip(*draw).apply(piece) for piece, *draw in pieces])


def transformed(images: Tensor, defense: Ats, sizes: Sequence[int], rngs: Sequence[Generator]) -> Tensor:
    """As `Ats.batch` does it, for many batches."""
    if defense.augment:
        images = cropped(images, sizes, rngs)
    drawn = [defense.drawn_from.draw(size, rng) for size, rng in zip(sizes, rngs, strict=True)]
    choice, signs = (torch.cat(parts).split(AT_ONCE) for parts in zip(*drawn, strict=True))
    pieces = zip(images.split(AT_ONCE), choice, signs, strict=True)
    return torch.cat([defense.drawn_from.apply(piece, Draw(c, s)) for piece, c, s in pieces])
