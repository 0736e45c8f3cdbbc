"""Whether controls, which have not seen a picture's update, find it more often than guessing does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradveil.core.interval import at_least
from gradveil.experiment.record import Record

RARE = 0.01  # how often guessing may be taken for more than guessing, over all scenarios


def beats_guessing(records: Sequence[Record], search: str, chance: float) -> bool:
    """Whether in some scenario more pictures are found than guessing explains (a binomial tail below 1 %).

    A picture counts once. Without its update all attacks make nearly the same of it, a gray blur, so that a picture
    that happens to be gray is found by every one of them: many hits, and one piece of luck.
    """
    measured = [r for r in records if search in r.scores]
    scenarios = {r.scenario for r in measured}
    level = 1 - RARE / max(1, len(scenarios))
    return any(_beats([r for r in measured if r.scenario == name], search, chance, level) for name in scenarios)


def _beats(records: Sequence[Record], search: str, chance: float, level: float) -> bool:
    tries = Counter((r.client, r.example) for r in records)
    found = {(r.client, r.example) for r in records if r.scores[search] > 0}
    of_a_picture = 1 - (1 - chance) ** max(tries.values())  # by one try at least; an upper bound where tries are alike
    return at_least(len(found), len(tries), level) > of_a_picture
