"""Pictures that are likely to leak: unusual ones and those of rare classes, audited beside the random sample.

The worst of a random sample says little of the worst picture there is. So some are chosen on purpose, and reported
apart: they are no sample, and no bound speaks of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradveil.data import Dataset

ROLE = "canaries"  # of their scenario in a run
SHARE = 10  # of the pictures that are no victims, at most one in ten


def choose_canaries(dataset: Dataset, rows: Sequence[int], count: int) -> list[int]:
    """Rows of `rows`: half of them of the rarest classes, the others the farthest from the mean picture.

    Of a class the pictures farthest from the mean come first. Where no class is rarer than another, all are of the
    second kind. Fewer than `count` where there are fewer than ten times as many rows.
    """
    if not (count := min(count, len(rows) // SHARE)):
        return []
    far = _distances(dataset.images[list(rows)])
    rare = _rarity(dataset.targets[list(rows)]) if dataset.loss is not None else [0.0] * len(rows)
    by_distance = sorted(range(len(rows)), key=lambda place: (-far[place], place))
    by_rarity = sorted(by_distance, key=lambda place: rare[place])  # stable
    chosen = by_rarity[: count // 2] if len(set(rare)) > 1 else []
    chosen += [place for place in by_distance if place not in set(chosen)][: count - len(chosen)]
    return [rows[place] for place in chosen]


def _distances(images: Tensor) -> list[float]:
    """Mean squared difference to the mean picture, in float64: the same order on every machine."""
    flat = images.flatten(1).double()
    return (flat - flat.mean(0)).square().mean(1).tolist()


def _rarity(targets: Tensor) -> list[float]:
    """How many pictures have this picture's rarest label."""
    has = (targets > 0).flatten(2).any(2) if targets.dim() > 2 else targets > 0
    counts = has.sum(0).double()
    return torch.where(has, counts, torch.inf).amin(1).tolist()
