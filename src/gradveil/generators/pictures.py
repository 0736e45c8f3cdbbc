"""Public pictures to train on: from several data sets, in one size, without those that will be attacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from gradveil import data
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_tensors
from gradveil.core.seeds import Seed
from gradveil.data.draw import Draw, draw_rows
from gradveil.defenses.loda.starts import fit_to, options_for
from gradveil.generators.provenance import as_bytes, resembling, thumbnails

HELD_OUT, MOST_HELD = 10, 256  # one in so many is kept to say what was learned
SHIFT = 8  # part of the side by which a picture is moved at most


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set as `gradveil.data.load` takes it. `skip` pictures are those that an audit of it attacks."""

    data: str
    options: Mapping[str, object] = field(default_factory=dict)
    skip: int = 0
    seed: int = 0  # of that audit
    draw: Draw = "seed"  # and how it chooses its pictures


@dataclass(frozen=True, kw_only=True)
class PublicPictures:
    """Pictures in 8 bits, [n, channel, size, size]; `held` are for the figures, nothing is trained on them."""

    name: str
    train: Tensor
    held: Tensor
    skipped: int
    alike: int  # left out because they look like a picture that is skipped or held out

    def to_metadata(self) -> dict[str, object]:
        """For the metadata of what is trained on them."""
        return {
            "data": self.name,
            "data_sha256": hash_tensors({"train": self.train, "held": self.held}),
            "pictures": len(self.train),
            "held_out": len(self.held),
            "skipped": self.skipped,
            "alike": self.alike,
        }


def public_pictures(
    sources: Sequence[str | Path | Source], *, size: int = 128, channels: int = 3, skip: int = 0, seed: int = 0
) -> PublicPictures:
    """Load all sources. `skip` is for those that say nothing themselves."""
    if not sources or size < 8 or channels not in (1, 3) or skip < 0:
        raise ConfigError(f"pictures: {len(sources)} data sets, size {size}, {channels} channels, skip {skip}: mend it")
    named = [one if isinstance(one, Source) else Source(data=str(one), skip=skip) for one in sources]
    loaded = [_load(source, size, channels) for source in named]
    parts = [_part(one, images) for one, (_, images) in zip(named, loaded, strict=True)]
    attacked, left = (torch.cat(part) for part in zip(*parts, strict=True))
    order = torch.randperm(len(left), generator=Seed(seed).at("held-out").rng())
    count = min(MOST_HELD, len(left) // HELD_OUT)
    held, rest = left[order[:count]], left[order[count:]]
    held, rest = held[~_copies(held, attacked)], rest[~_copies(rest, torch.cat([attacked, held]))]
    if not len(rest) or not len(held):
        raise ConfigError(
            f"pictures: {len(left)} are too few to train on, give {HELD_OUT} or more that are not skipped"
        )
    return PublicPictures(
        name=" + ".join(name for name, _ in loaded),
        train=rest,
        held=held,
        skipped=len(attacked),
        alike=len(left) - len(rest) - len(held),
    )


def _part(source: Source, images: Tensor) -> tuple[Tensor, Tensor]:
    """What an audit attacks, and the rest in its order."""
    attacked = draw_rows(len(images), Seed(source.seed), source.draw)[: source.skip]
    free = torch.ones(len(images), dtype=torch.bool)
    free[attacked] = False
    return images[attacked], images[free]


def _load(source: Source, size: int, channels: int) -> tuple[str, Tensor]:
    """In one size; of data with a part to train on, that part unless another is asked for."""
    offered = {"size": size, "channels": channels, "split": "train"}
    known = options_for(source.data)
    options = {name: value for name, value in offered.items() if name in known} | dict(source.options)
    dataset = data.load(source.data, **options)
    if len(dataset) <= source.skip:
        raise ConfigError(
            f"{source.data}: {len(dataset)} pictures, of which {source.skip} are skipped, give this data set a skip "
            "of its own"
        )
    return dataset.name, as_bytes(fit_to(dataset.images, (channels, size, size)))


def _copies(images: Tensor, of: Tensor) -> Tensor:
    """Which pictures look like one of the others, or like its mirror image."""
    if not len(of) or not len(images):
        return torch.zeros(len(images), dtype=torch.bool)
    return resembling(thumbnails(images), thumbnails(torch.cat([of, of.flip(-1)])))


def batches(pictures: Tensor, size: int, seed: Seed) -> Iterator[tuple[slice, Tensor]]:
    """One epoch of pictures [n, h, w, c] in 8 bits, in a new order, moved and mirrored: [size, c, h, w] in [0, 1].

    All that is random is drawn on the CPU, at once. The last batch is left out if it is not full, unless it is all.
    """
    count = len(pictures)
    order = torch.randperm(count, generator=seed.at("order").rng())
    order, row, column = (part.to(pictures.device) for part in (order, *_frames(count, pictures.shape[1:3], seed)))
    size = min(size, count)
    for first in range(0, count - size + 1, size):
        here = slice(first, first + size)
        fed = pictures[order[here, None, None], row[here, :, None], column[here, None, :]]
        yield here, fed.permute(0, 3, 1, 2).float() / 255


def move_and_mirror(images: Tensor, seed: Seed) -> Tensor:
    """Pictures [n, c, h, w], each moved by up to an eighth of its side, and mirrored or not."""
    row, column = _frames(len(images), images.shape[2:], seed)
    return images.take_along_dim(row[:, None, :, None], 2).take_along_dim(column[:, None, None, :], 3)


def _frames(count: int, size: Sequence[int], seed: Seed) -> tuple[Tensor, Tensor]:
    """Which row and column of each picture every row and column shows."""
    chances = torch.rand(count, 3, generator=seed.at("frame").rng(), dtype=torch.float64)
    row, column = _places(chances[:, 0], size[0]), _places(chances[:, 1], size[1])
    return row, torch.where(chances[:, 2:] < 0.5, column.flip(1), column)


def _places(chance: Tensor, side: int) -> Tensor:
    """The row of the picture that each row shows after a move, [n, side]: beyond the border it is mirrored."""
    reach = side // SHIFT
    moved = (chance * (2 * reach + 1)).long()[:, None] - reach + torch.arange(side)
    inside = moved.abs()
    return (side - 1) - ((side - 1) - inside).abs()
