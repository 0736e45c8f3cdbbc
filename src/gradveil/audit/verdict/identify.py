"""Re-identification: how often the original was found in the gallery, and how often guessing finds it.

Top-1 on pixels decides with the leaks, and so does the search under symmetries, of pictures that it finds near. The
other searches are looked at together: each must beat chance at a level that leaves all of them 5 % to be wrong, and
counts for nothing where the negative controls beat chance as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradveil.audit.ladder import is_whole
from gradveil.audit.results import Run
from gradveil.audit.verdict.leak import IDENTIFICATION, NEGATIVE, Baselines, lookups
from gradveil.audit.verdict.negative_control import beats_guessing
from gradveil.core.interval import Interval, at_least, rate_interval
from gradveil.core.metric import Facts, Lookup
from gradveil.experiment.record import Record
from gradveil.metrics.symmetric import RETRIEVAL_SYMMETRIC

FIRST = IDENTIFICATION.name
# what these find is counted by picture: on pixels as identified, under symmetries where it is near as well
DECIDED_ALREADY = (FIRST, RETRIEVAL_SYMMETRIC.name)
ERROR = 0.05
BY = {  # other than pixels
    "symmetry": " mirrored, turned, shifted, negated or in another contrast",
    "features": " by network features",
    "detail": " by detail",
}


@dataclass(frozen=True, kw_only=True)
class Search:
    """One way to look for the original, over all pictures of a defense; attacks share their hits."""

    metric: str
    lookup: Lookup
    hits: int
    of: int
    chance: float | None  # that a picture is found by at least one of the attacks though none saw anything
    level: float  # of the test against chance
    gallery: int | None = None  # pictures compared, the original included
    planned: int = 0  # pictures that the run is about, of which it may have seen a part
    believed: bool = True  # false: attacks that have not seen the update find more than chance explains, too

    @property
    def top(self) -> int:
        return self.lookup.top

    @property
    def on(self) -> str:
        return self.lookup.by

    @property
    def share(self) -> float:
        return self.hits / self.of if self.of else 0.0

    @property
    def interval(self) -> Interval:
        return rate_interval(self.hits, self.of)

    @property
    def beats_chance(self) -> bool:
        return self.chance is not None and at_least(self.hits, max(self.of, self.planned), self.level) > self.chance

    @property
    def sentence(self) -> str:
        """A sentence for a reader who knows nothing of metrics."""
        place = "was the nearest" if self.top == 1 else f"ranked among the {self.top} nearest"
        size = "" if self.gallery is None else f" of {self.gallery:,}"
        guessing = "unknown" if self.chance is None else f"{100 * self.chance:.1f} %"
        where = f"{size}{BY.get(self.on, '')}"
        return f"For {self.hits} of {self.of} pictures the original {place}{where} (random guessing: {guessing})."

    def to_json(self) -> dict[str, Any]:
        counts = {"hits": self.hits, "of": self.of, "low": self.interval.low, "high": self.interval.high}
        return counts | {"chance": self.chance, "beats_chance": self.beats_chance, "believed": self.believed}


def unreliable_searches(run: Run) -> frozenset[str]:
    """Searches whose negative controls beat chance: a prior or known labels find the picture, and not its update."""
    controls = [r for r in run.records if r.control in NEGATIVE and r.status == "ok" and is_whole(r.attack)]
    gallery = run.gallery
    if not gallery:
        return frozenset()
    return frozenset(
        name
        for name, one in lookups().items()
        if one.lookup and beats_guessing(controls, name, min(1.0, one.lookup.top / gallery))
    )


def searches(
    pictures: Mapping[Any, Sequence[Record]],
    baselines: Baselines,
    gallery: int | None,
    tries: int,
    doubtful: frozenset[str] = frozenset(),
    planned: int = 0,
) -> tuple[Search, ...]:
    """Those that were measured, in the order of the catalogue. A picture that fails in every trial is not counted."""
    scored = [[r for r in of_one if r.status == "ok" and r.has_truth] for of_one in pictures.values()]
    scored = [of_one for of_one in scored if of_one]
    measured = [one for one in lookups().values() if any(one.name in r.scores for of_one in scored for r in of_one)]
    others = max(1, sum(one.name not in DECIDED_ALREADY for one in measured))
    found = [_search(one, scored, baselines, gallery, tries, others) for one in measured]
    return tuple(replace(search, believed=search.metric not in doubtful, planned=planned) for search in found)


def _search(
    facts: Facts, pictures: list[list[Record]], baselines: Baselines, gallery: int | None, tries: int, others: int
) -> Search:
    assert facts.lookup is not None
    alone = min(1.0, facts.lookup.top / gallery) if gallery else None
    return Search(
        metric=facts.name,
        lookup=facts.lookup,
        hits=sum(any(baselines.is_found(r, facts.name) for r in of_one) for of_one in pictures),
        of=len(pictures),
        gallery=gallery,
        chance=None if alone is None else 1 - (1 - alone) ** tries,
        level=1 - ERROR / (1 if facts.name in DECIDED_ALREADY else others),
    )
