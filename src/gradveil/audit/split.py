"""Who is who in a data set: the victims, the gallery they hide in, and what is public."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.data import Dataset

LARGEST_GALLERY, LARGEST_PUBLIC = 1000, 256  # the first unless asked otherwise


@dataclass(frozen=True, kw_only=True)
class Split:
    """Disjoint parts of a data set, in its order."""

    victims: Batch  # [client, example, ...]
    names: tuple[str, ...]
    gallery: Tensor | None
    public: Batch | None


def split_dataset(dataset: Dataset, clients: int, batch_size: int, largest: int = LARGEST_GALLERY) -> Split:
    """The first pictures are the victims, grouped in order; of the rest a fifth at most is public."""
    there, wanted = len(dataset.images), clients * batch_size
    if there < wanted:
        raise ConfigError(
            f"scenario.images: {clients} clients with {batch_size} pictures each need {wanted} pictures, "
            f"{dataset.name} has {there}, ask for fewer"
        )
    images, labels = dataset.images, dataset.targets
    public = min(LARGEST_PUBLIC, (there - wanted) // 5)
    gallery = min(largest, there - wanted - public)
    known = slice(wanted + gallery, wanted + gallery + public)
    group = (clients, batch_size)
    return Split(
        victims=Batch(images[:wanted].unflatten(0, group), labels[:wanted].unflatten(0, group)),
        names=tuple(f"c{client:04d}" for client in range(clients)),
        gallery=images[wanted : wanted + gallery] if gallery else None,
        public=Batch(images[known], labels[known]) if public else None,
    )
