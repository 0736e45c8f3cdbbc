"""Labeled pictures to train a conditional GAN on, without those that look like what will be attacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil import data
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_tensors
from gradveil.data import Dataset
from gradveil.defenses.loda.starts import fit_to, options_for
from gradveil.generators.conditional import FIRST
from gradveil.generators.pictures import Source
from gradveil.generators.provenance import as_bytes, resembling, thumbnails

SIDES = tuple(FIRST * 2**blocks for blocks in range(1, 6))


@dataclass(frozen=True, kw_only=True)
class Labeled:
    """Pictures in 8 bits, [n, channel, side, side], and one-hot labels."""

    name: str
    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    alike: int  # left out because they look like a picture that is attacked

    def to_metadata(self) -> dict[str, object]:
        """For the metadata of what is trained on them."""
        return {
            "data": self.name,
            "data_sha256": hash_tensors({"images": self.images, "labels": self.labels}),
            "pictures": len(self.images),
            "alike": self.alike,
            "class_names": ",".join(self.class_names),
        }


def labeled_pictures(source: Source, *, avoid: tuple[Source, ...] = (), size: int = 0, device: str = "cpu") -> Labeled:
    """Of data with a part to train on, that part. `size` 0: the data's own. Look-alikes of `avoid` are left out."""
    dataset = _load(source, size, "train")
    if not dataset.has_labels:
        raise ConfigError(f"{dataset.name}: has not one class per picture, train on pictures that have")
    side = size or dataset.shape[1]
    if side not in SIDES:
        raise ConfigError(f"must be one of {', '.join(map(str, SIDES))} pixels, got {side}", key="size")
    shape = (dataset.shape[0], side, side)
    images, labels = as_bytes(fit_to(dataset.images, shape)), dataset.targets
    kept = ~_like(images, [as_bytes(fit_to(_load(one, size, "test").images, shape)) for one in avoid], device)
    if int(kept.sum()) < 2:
        raise ConfigError(f"{dataset.name}: {int(kept.sum())} pictures are left to train on, give more")
    facts = {"name": dataset.name, "class_names": dataset.class_names, "alike": int((~kept).sum())}
    return Labeled(images=images[kept], labels=labels[kept], **facts)


def public_rows(dataset: Dataset, rows: Sequence[int], *, avoid: Tensor, more: Sequence[Source] = ()) -> Labeled:
    """These rows of a data set and all of some others, in its size, without what looks like a picture to avoid."""
    others = [_load(source, dataset.shape[1], "train") for source in more]
    for other in others:
        if other.targets.shape[1] != dataset.targets.shape[1]:
            raise ConfigError(
                f"{other.name}: has {other.targets.shape[1]} classes and {dataset.name} {dataset.targets.shape[1]}, "
                "give public pictures of the same classes",
                key="public",
            )
    rows = list(rows)
    images = torch.cat([as_bytes(dataset.images[rows]), *(as_bytes(fit_to(x.images, dataset.shape)) for x in others)])
    labels = torch.cat([dataset.targets[rows], *(other.targets for other in others)])
    kept = ~_like(images, [as_bytes(avoid)], "cpu")
    return Labeled(
        name=" + ".join(one.name for one in (dataset, *others)), images=images[kept], labels=labels[kept],
        class_names=dataset.class_names, alike=int((~kept).sum()),
    )  # fmt: skip


def _load(source: Source, size: int, split: str) -> Dataset:
    known, offered = options_for(source.data), {"split": split, **({"size": size} if size else {})}
    options = {name: value for name, value in offered.items() if name in known} | dict(source.options)
    return data.load(source.data, **options)


def _like(images: Tensor, others: list[Tensor], device: str) -> Tensor:
    """Which pictures look like one of the others, or like its mirror image."""
    if not others:
        return torch.zeros(len(images), dtype=torch.bool)
    known = thumbnails(torch.cat([view for one in others for view in (one, one.flip(-1))]))
    return resembling(thumbnails(images).to(device), known.to(device)).cpu()
