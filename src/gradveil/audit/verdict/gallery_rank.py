"""At which place of the gallery the original stands: what identification counts only from the first place on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gradveil.experiment.record import Record
from gradveil.metrics.retrieval import RETRIEVAL_RANK


@dataclass(frozen=True, kw_only=True)
class GalleryRank:
    """Over pictures, the median of the best place that any attack gave the original; 1 is the nearest."""

    median: float
    of: int  # pictures compared, the original included
    tries: int  # attacks and attackers: the best of several guesses stands further in front, too

    @property
    def guessing(self) -> int:
        """What so many guesses that look at no update reach.

        >>> GalleryRank(median=164, of=1001, tries=1).guessing
        501
        """
        return math.ceil(self.of * (1 - 0.5 ** (1 / self.tries)))

    def __str__(self) -> str:
        """
        >>> print(GalleryRank(median=164, of=1001, tries=1))
        median rank 164 of 1,001 (random guessing: 501)
        """
        best = "" if self.tries == 1 else f", best of {self.tries}"
        return f"median rank {self.median:,.0f} of {self.of:,} (random guessing{best}: {self.guessing:,})"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "guessing": self.guessing}


def rank_in_gallery(pictures: Mapping[Any, Sequence[Record]], gallery: int | None, tries: int) -> GalleryRank | None:
    """None where it was not measured, as in runs of earlier versions."""
    name = RETRIEVAL_RANK.name
    ranks = [[r.scores[name] for r in some if r.status == "ok" and name in r.scores] for some in pictures.values()]
    best = [min(some) for some in ranks if some]
    return GalleryRank(median=median(best), of=gallery, tries=tries) if best and gallery else None
