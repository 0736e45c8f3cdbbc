"""How often one client's examples are fed in a whole training: what a privacy account is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """One client's noisy steps over all rounds that it takes part in."""

    client: str
    pictures: int
    batch: int  # of them in a step; the last of an epoch may be smaller, and counts as a whole one
    rounds: int  # that it takes part in. Who does is seen, so that it was drawn is no help
    steps: int
    uses: int  # steps that one example can be in at most: every epoch deals each picture out once

    @property
    def rate(self) -> float:
        """The chance of one example to be in a step, if steps drew anew each time."""
        return self.batch / self.pictures


def worst_candidates(found: Sequence[Exposure]) -> list[Exposure]:
    """Those that no other has both more steps and a higher rate than: epsilon grows with either."""
    kept: list[Exposure] = []
    for one in sorted(found, key=lambda e: (-e.steps, -e.rate)):
        if not kept or one.rate > kept[-1].rate:
            kept.append(one)
    return kept
