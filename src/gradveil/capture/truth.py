"""Which pictures the captured clients hold: as they are given, in the order of the data, or found by trying each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradveil.audit.split import LARGEST_GALLERY, LARGEST_PUBLIC
from gradveil.capture.causes.story import relative_error, train_once
from gradveil.capture.format import Capture
from gradveil.capture.replay import search, tolerance
from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.data import Dataset

MOST_TRIED = 5000  # pictures of the data that are tried for a client that holds one


@dataclass(frozen=True, kw_only=True)
class Found:
    """The clients' pictures, and what is left of the data."""

    rows: tuple[int, ...]  # client after client
    batches: Mapping[str, Batch]
    gallery: Tensor | None
    gallery_labels: Tensor | None  # [picture, class]
    public: Batch | None

    @property
    def decoys(self) -> Batch | None:
        """What no captured client holds."""
        if self.gallery is None or self.gallery_labels is None:
            return self.public
        if self.public is None:
            return Batch(self.gallery, self.gallery_labels)
        both = zip((self.gallery, self.gallery_labels), (self.public.images, self.public.labels), strict=True)
        return Batch(*(torch.cat(pair) for pair in both))


def find(
    capture: Capture, model: nn.Module, groups: Mapping[int, Sequence[str]], dataset: Dataset, given: Sequence[int] = ()
) -> Found:
    """Rows that are given are taken; otherwise the first ones and, for a client with one picture, the one that fits."""
    counts = {client: count for count, clients in groups.items() for client in clients}
    rows = _check_rows(counts, dataset, given) if given else _in_order(counts, dataset)
    if not given:
        rows = {client: _search(capture, model, client, own, dataset) for client, own in rows.items()}
    used = {row for own in rows.values() for row in own}
    rest = torch.tensor([row for row in range(len(dataset.images)) if row not in used], dtype=torch.long)
    public = rest[len(rest) - min(LARGEST_PUBLIC, len(rest) // 5) :] if len(rest) >= 5 else rest[:0]
    gallery = rest[: min(LARGEST_GALLERY, len(rest) - len(public))]
    return Found(
        rows=tuple(row for own in rows.values() for row in own),
        batches={client: Batch(dataset.images[own], dataset.targets[own]) for client, own in rows.items()},
        gallery=dataset.images[gallery] if len(gallery) else None,
        gallery_labels=dataset.targets[gallery] if len(gallery) else None,
        public=Batch(dataset.images[public], dataset.targets[public]) if len(public) else None,
    )


def _check_rows(counts: Mapping[str, int], dataset: Dataset, given: Sequence[int]) -> dict[str, list[int]]:
    needed, last = sum(counts.values()), len(dataset.images) - 1
    strange = [row for row in given if not 0 <= row <= last]
    if len(given) != needed or strange:
        got = f"{strange[0]}" if strange else f"{len(given)}"
        raise ConfigError(
            f"must be {needed} rows from 0 to {last}, client after client in the order "
            f"{', '.join(list(counts)[:5])}, got {got}",
            key="pictures",
        )
    dealt = _deal(counts, list(given))
    for client, own in dealt.items():
        if len(set(own)) < len(own):
            raise ConfigError(f"{client} is given a row twice, name {len(own)} different ones", key="pictures")
    return dealt


def _in_order(counts: Mapping[str, int], dataset: Dataset) -> dict[str, list[int]]:
    needed = sum(counts.values())
    if len(dataset.images) < needed:
        raise ConfigError(
            f"has {len(dataset.images)} pictures, the captured clients hold {needed}, give all", key="data"
        )
    return _deal(counts, list(range(needed)))


def _deal(counts: Mapping[str, int], rows: list[int]) -> dict[str, list[int]]:
    found, first = {}, 0
    for client, count in counts.items():
        found[client] = rows[first : first + count]
        first += count
    return found


def _search(capture: Capture, model: nn.Module, client: str, rows: list[int], dataset: Dataset) -> list[int]:
    """As it lies in the data, unless another picture of a client with one reproduces the update and that does not.

    The best of many that does not reproduce it would look right by being the best.
    """
    if len(rows) > 1 or _fits(capture, model, client, rows, dataset):
        return rows
    best = search(capture, model, client, dataset.images[:MOST_TRIED], dataset.targets[:MOST_TRIED])
    return [best] if _fits(capture, model, client, [best], dataset) else rows


def _fits(capture: Capture, model: nn.Module, client: str, rows: list[int], dataset: Dataset) -> bool:
    own = train_once(model, Batch(dataset.images[rows], dataset.targets[rows]), capture.training)
    update = {name: tensor.float() for name, tensor in capture.updates[client].items()}
    return relative_error(update, own) <= tolerance(capture, client)
