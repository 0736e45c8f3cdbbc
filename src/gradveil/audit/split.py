"""Who is who in a data set: the victims, the gallery they hide in, and what is public."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gradveil.audit.canaries import choose_canaries
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.data.draw import Draw, draw_rows

LARGEST_GALLERY, LARGEST_PUBLIC = 1000, 256  # the first unless asked otherwise


@dataclass(frozen=True, kw_only=True)
class Split:
    """Disjoint parts of a data set. `rows` are those of the victims, client after client."""

    victims: Batch  # [client, example, ...]
    rows: tuple[int, ...]
    canaries: Batch | None = None  # [example, ...], chosen and not drawn
    canary_rows: tuple[int, ...] = ()
    names: tuple[str, ...]
    gallery: Tensor | None
    gallery_labels: Tensor | None = None  # [picture, class]
    public: Batch | None


def split_dataset(
    dataset: Dataset,
    clients: int,
    batch_size: int,
    largest: int = LARGEST_GALLERY,
    seed: int = 0,
    draw: Draw = "seed",
    canaries: int = 0,
) -> Split:
    """Victims, grouped as they are drawn; of the rest a fifth at most is public.

    largest: pictures in the gallery, at most
    seed: of the audit; it decides which pictures are drawn
    draw: `seed` for a random sample, `first` for the first rows
    canaries: unusual pictures to choose of the rest, see `choose_canaries`
    """
    total, wanted = len(dataset.images), clients * batch_size
    if total < wanted:
        raise ConfigError(
            f"scenario.images: {clients} clients with {batch_size} pictures each need {wanted} pictures, "
            f"{dataset.name} has {total}, ask for fewer"
        )
    rows = draw_rows(total, Seed(seed), draw)
    victims, rest = rows[:wanted], rows[wanted:]
    unusual = choose_canaries(dataset, rest, canaries)
    taken = set(unusual)
    rest = [row for row in rest if row not in taken]
    public = min(LARGEST_PUBLIC, len(rest) // 5)
    gallery = min(largest, len(rest) - public)
    known = rest[gallery : gallery + public]
    return Split(
        victims=_group(dataset, victims, clients),
        rows=tuple(victims),
        canaries=Batch(dataset.images[unusual], dataset.targets[unusual]) if unusual else None,
        canary_rows=tuple(unusual),
        names=tuple(f"c{client:04d}" for client in range(clients)),
        gallery=dataset.images[rest[:gallery]] if gallery else None,
        gallery_labels=dataset.targets[rest[:gallery]] if gallery else None,
        public=Batch(dataset.images[known], dataset.targets[known]) if public else None,
    )


def _group(dataset: Dataset, rows: list[int], clients: int) -> Batch:
    """[client, example, ...]"""
    return Batch(*(x[rows].unflatten(0, (clients, -1)) for x in (dataset.images, dataset.targets)))
