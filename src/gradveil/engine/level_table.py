"""What a transformation did to the levels of pictures, undone by a table that is learned on public pictures.

Equalize, posterize, solarize and autocontrast map levels, most of them not one to one, and have no slope to search
through. The table says what a level was on average before it became this one, E[x | level]. It is used where it tells
most of the picture, as it does not where a picture was moved. Nothing is known of how the map works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.core.knowledge import View
from gradveil.core.types import Images

BINS = 64
DOUBT = 1.0  # pixels' worth of belief that a level is what it was
TELLS = 0.5  # of the variance of pixels that it did not learn from, at least
SAME = 0.4  # of a picture's variance, at most: how far it may be from what its undone self becomes
FEWEST = 8  # public pictures, half of them to try it on


@dataclass(frozen=True)
class LevelTable:
    """The mean level before, for each channel and each of `BINS` levels after: [channel, bin]."""

    before: Tensor

    @classmethod
    def learn(cls, before: Tensor, after: Tensor) -> LevelTable:
        """From pictures [picture, channel, height, width]; a pixel counts for both levels beside it, as it is near."""
        levels = torch.linspace(0, 1, BINS, dtype=torch.float64, device=after.device)
        rows = []
        for was, became in zip(before.unbind(1), after.unbind(1), strict=True):
            lower, share = _place(became.flatten().double())
            weight = torch.full_like(levels, DOUBT)
            total = weight * levels
            for at, part in ((lower, 1 - share), (lower + 1, share)):
                total.index_add_(0, at, part * was.flatten().double())
                weight.index_add_(0, at, part)
            rows.append(total / weight)
        return cls(torch.stack(rows))

    def __call__(self, images: Images) -> Images:
        lower, share = _place(images)
        channels = torch.arange(len(self.before), device=images.device).view(-1, 1, 1)
        table = self.before.to(images)
        return torch.lerp(table[channels, lower], table[channels, lower + 1], share)


def _place(levels: Tensor) -> tuple[Tensor, Tensor]:
    """The bin below, and the share of the one above it."""
    place = levels.clamp(0, 1) * (BINS - 1)
    lower = place.floor().clamp_max(BINS - 2).long()
    return lower, place - lower


def learn_tables(views: Sequence[View], public: Images | None) -> list[LevelTable | None]:
    """For each view the table that undoes it; None where it tells too little."""
    if public is None or len(public) < FEWEST:
        return [None] * len(views)
    half = len(public) // 2
    return [_learn_and_try(public[:half], public[half:], view) for view in views]


def _learn_and_try(learned: Images, tried: Images, view: View) -> LevelTable | None:
    table = LevelTable.learn(learned, view.apply(learned))
    off = (table(view.apply(tried)) - tried).square().mean()
    return table if off < (1 - TELLS) * tried.var() else None


def undo(fed: Images, views: Sequence[View], tables: Sequence[LevelTable | None]) -> tuple[Images, Tensor]:
    """Pictures as they were before [picture, ...], and whether they can have been that.

    Of the tables, that of the view is taken which makes the fed picture of the undone one most nearly. Where a view has
    no table, the picture may have been moved: then the undone one, or the picture as it is, must become the fed one
    again, or it is none.
    """
    before, off = fed, torch.stack([_apart(view.apply(fed), fed) for view in views]).amin(0)
    possible = off < SAME
    nearest = torch.full_like(off, torch.inf if all(tables) else SAME)
    for view, table in zip(views, tables, strict=True):
        if table is None:
            continue
        undone = table(fed)
        off = _apart(view.apply(undone), fed)
        better = off < nearest
        before, nearest = torch.where(better[:, None, None, None], undone, before), torch.where(better, off, nearest)
        possible = possible | better
    return before, possible


def _apart(one: Images, fed: Images) -> Tensor:
    """Mean squared difference, over the picture's variance."""
    variance = fed.flatten(1).var(1).clamp_min(1e-6)
    return (one - fed).square().flatten(1).mean(1) / variance
