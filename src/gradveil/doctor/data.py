"""The pictures: how many, how large, of which classes, and what is odd about them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradveil.data import Dataset
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject

UNEVEN, LISTED = 3.0, 6  # the largest class over the smallest; classes that are listed
DARK, LIGHT = 0.02, 0.98
FEW = 100  # pictures, below which a line-up says little


def look_at_data(subject: Subject) -> Iterator[Finding]:
    dataset = subject.dataset
    if dataset is None:
        yield Finding(
            topic="data",
            level="note",
            what="none given: nobody can tell whether a reconstruction is right",
            why="without the pictures no verdict can say how much leaks",
            do="set `data` to the clients' own",
        )
        return
    channels, height, width = dataset.shape
    low, high = (float(one) for one in torch.aminmax(dataset.images))
    what = f"{len(dataset):,} pictures of {height}x{width} pixels, {channels} channel{'s' * (channels > 1)}, "
    yield Finding(topic="data", level="ok", what=f"{what}values from {low:.3g} to {high:.3g}")
    yield from _look_at_values(dataset)
    yield from _look_at_classes(dataset)
    yield from _look_at_copies(dataset.images)
    if len(dataset) < FEW:
        yield Finding(
            topic="data",
            level="note",
            what=f"only {len(dataset)} pictures to be attacked and compared with",
            why="a line-up of few candidates says little, and a verdict needs many pictures",
            do="give more pictures of the same kind",
        )


def _look_at_values(dataset: Dataset) -> Iterator[Finding]:
    mean = float(dataset.images.mean())
    if not DARK < mean < LIGHT:
        yield Finding(
            topic="data",
            level="note",
            what=f"the pictures are nearly {'black' if mean < 0.5 else 'white'} (mean {mean:.2g} of 0 to 1)",
            why="pixels may have been divided by 255 twice, or cut off",
            do="look at the pictures, or give their range of values in the data's options",
        )
    if dataset.shape[0] == 3 and _is_gray(dataset.images):
        yield Finding(
            topic="data",
            level="note",
            what="the three channels are equal: gray pictures as color",
            why="right if your model takes three channels, else a third of the numbers is enough",
            do="set the option channels=1 of the data if your model takes one",
        )


def _is_gray(images: Tensor) -> bool:
    return all(torch.equal(images[:, 0], images[:, other]) for other in (1, 2))


def _look_at_classes(dataset: Dataset) -> Iterator[Finding]:
    target = dataset.targets[0]
    if dataset.loss is None:
        what = f"targets are numbers, {tuple(target.shape)} for each picture"
        yield Finding(topic="data", level="ok", what=what)
        return
    if target.dim() > 1:
        shares = dataset.targets.transpose(0, 1).flatten(1).mean(1).tolist()
        listed = ", ".join(f"{name} {share:.1%}" for name, share in zip(dataset.class_names, shares, strict=True))
        yield Finding(
            topic="data", level="ok", what=f"targets are masks of {len(shares)} classes; of the pixels {listed}"
        )
        return
    counts = dataset.targets.sum(0)
    order = counts.argsort(descending=True).tolist()
    listed = ", ".join(f"{dataset.class_names[one]} {int(counts[one]):,}" for one in order[:LISTED])
    rest = f" and {len(order) - LISTED} more" if len(order) > LISTED else ""
    several = "; several labels a picture" if dataset.loss == "binary-cross-entropy" else ""
    yield Finding(topic="data", level="ok", what=f"{len(order)} classes{several}: {listed}{rest}")
    if int((counts == 0).sum()):
        yield Finding(
            topic="data",
            level="note",
            what=f"{int((counts == 0).sum())} classes have no picture",
            why="what attacks make of them is not measured",
            do="give pictures of every class",
        )
    least = float(counts[counts > 0].min())
    if (ratio := float(counts.max()) / max(least, 1.0)) >= UNEVEN:
        share = least / float(counts.sum())
        yield Finding(
            topic="data",
            level="note",
            what=f"the largest class has {ratio:.3g} times the pictures of the "
            f"smallest, which is {share:.1%} of the data",
            why="pictures are drawn as they are distributed, so "
            "few of the smallest class are attacked; rare pictures often leak more",
            do="set `canaries = 16` to attack rare and unusual pictures as well",
        )


def _look_at_copies(images: Tensor) -> Iterator[Finding]:
    if copies := count_copies(images):
        yield Finding(
            topic="data",
            level="note",
            what=f"{copies:,} pictures are copies of others, to the pixel",
            why="an original cannot be told from its copy, so copies are left out where pictures are compared",
            do="remove the copies if your clients do not hold them",
        )


def count_copies(images: Tensor) -> int:
    """Pictures that an earlier one equals. Copies have the same product with random numbers, others never have."""
    flat = images.flatten(1)
    rng = torch.Generator().manual_seed(0)
    codes = flat.double() @ torch.rand(flat.shape[1], 2, generator=rng, dtype=torch.float64)
    return len(codes) - len(codes.unique(dim=0))
