"""When a picture counts as leaked.

Its reconstruction is identified, that is, nearer to the original than to any picture of the gallery, and has at most
half the squared error (3 dB) of what the attacker could show without this picture's update: a blank picture in the
mean color of what is public, and what the same attack made of the negative controls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gradveil.core.metric import Facts
from gradveil.experiment.record import Record
from gradveil.metrics import METRICS
from gradveil.metrics.psnr import PSNR
from gradveil.metrics.retrieval import RETRIEVAL

CLOSENESS, IDENTIFICATION = PSNR, RETRIEVAL  # the two metrics that decide whether a picture leaked
MARGIN = 3.0  # dB
NEGATIVE = ("prior", "random", "another")
Place = tuple[str, str, str, int]  # scenario, attack, client, example


def lookups() -> dict[str, Facts]:
    """The metrics that look for the original in a gallery, the one that decides first."""
    found = {name: row.facts for name, row in METRICS.items() if row.facts.lookup is not None}
    return {IDENTIFICATION.name: IDENTIFICATION, **found}


def closeness(record: Record) -> float | None:
    """How near a reconstruction is to the original in the metric that decides; None where it was not measured."""
    return record.scores.get(CLOSENESS.name)


def place(record: Record) -> Place:
    return record.scenario, record.attack, record.client, record.example


@dataclass(frozen=True)
class Baselines:
    """What an attack makes of a picture without having seen its update."""

    closeness: dict[Place, float]
    identified: frozenset[Place]
    otherwise: frozenset[tuple[str, Place]] = field(default=frozenset())  # by another search than top-1 on pixels

    @classmethod
    def of(cls, records: Iterable[Record]) -> Baselines:
        best: dict[Place, float] = defaultdict(lambda: float("-inf"))
        known: set[Place] = set()
        otherwise: set[tuple[str, Place]] = set()
        others = lookups().keys() - {IDENTIFICATION.name}
        for record in records:
            if record.control in NEGATIVE and record.status == "ok":
                here = place(record)
                best[here] = max(best[here], record.scores.get(CLOSENESS.name, float("-inf")))
                known |= {here} if record.scores.get(IDENTIFICATION.name, 0) > 0 else set()
                otherwise |= {(name, here) for name in others if record.scores.get(name, 0) > 0}
        return cls(dict(best), frozenset(known), frozenset(otherwise))

    def floor(self, record: Record) -> float:
        """The best closeness that needs no update. A control is not its own baseline."""
        blank = float("-inf") if record.blank is None else record.blank
        return blank if record.control else max(blank, self.closeness.get(place(record), float("-inf")))

    def is_identified(self, record: Record) -> bool:
        """In the gallery, by the update and not by what was believed before."""
        hit = record.scores.get(IDENTIFICATION.name, 0) > 0
        return hit and (bool(record.control) or place(record) not in self.identified)

    def is_found(self, record: Record, search: str) -> bool:
        """As `is_identified`, by any search. The nearest is among the five nearest, whatever was believed before."""
        if search == IDENTIFICATION.name:
            return self.is_identified(record)
        new = bool(record.control) or (search, place(record)) not in self.otherwise
        hit = record.scores.get(search, 0) > 0 and new
        return hit or any(self.is_found(record, narrower) for narrower in _narrower(search))

    def is_leaked(self, record: Record) -> bool:
        """Without a gallery the squared error alone decides."""
        near = closeness(record)
        if record.status != "ok" or near is None:
            return False
        return record.scores.get(IDENTIFICATION.name, 1) > 0 and near >= self.floor(record) + MARGIN


def _narrower(search: str) -> list[str]:
    """Searches of the same kind among fewer pictures: what they find, this one has found."""
    known = lookups()
    own = known[search].lookup if search in known else None
    if own is None:
        return []
    return [name for name, one in known.items() if one.lookup and one.lookup.by == own.by and one.lookup.top < own.top]
