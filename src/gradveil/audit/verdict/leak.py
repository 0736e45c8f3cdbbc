"""When a picture counts as leaked.

Its reconstruction is identified, that is, nearer to the original than to any picture of the gallery, and has at most
half the squared error (3 dB) of what the attacker could show without this picture's update: a blank picture in the
mean color of what is public, and what the same attack made of the negative controls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gradveil.experiment.record import Record

MARGIN = 3.0  # dB
NEGATIVE = ("prior", "random", "another")
WIDER = {"retrieval-top5": "retrieval", "retrieval-features-top5": "retrieval-features"}  # search -> inside it
Place = tuple[str, str, str, int]  # scenario, attack, client, example


def place(record: Record) -> Place:
    return record.scenario, record.attack, record.client, record.example


@dataclass(frozen=True)
class Baselines:
    """What an attack makes of a picture without having seen its update."""

    psnr: dict[Place, float]
    identified: frozenset[Place]
    otherwise: frozenset[tuple[str, Place]] = field(default=frozenset())  # by another search than top-1 on pixels

    @classmethod
    def of(cls, records: Iterable[Record]) -> Baselines:
        best: dict[Place, float] = defaultdict(lambda: float("-inf"))
        known: set[Place] = set()
        otherwise: set[tuple[str, Place]] = set()
        for record in records:
            if record.control in NEGATIVE and record.status == "ok":
                here = place(record)
                best[here] = max(best[here], record.scores.get("psnr", float("-inf")))
                known |= {here} if record.scores.get("retrieval", 0) > 0 else set()
                hits = [name for name, value in record.scores.items() if name.startswith("retrieval-") and value > 0]
                otherwise |= {(name, here) for name in hits}
        return cls(dict(best), frozenset(known), frozenset(otherwise))

    def floor(self, record: Record) -> float:
        """The best PSNR that needs no update. A control is not its own baseline."""
        blank = float("-inf") if record.blank is None else record.blank
        return blank if record.control else max(blank, self.psnr.get(place(record), float("-inf")))

    def is_identified(self, record: Record) -> bool:
        """In the gallery, by the update and not by what was believed before."""
        hit = record.scores.get("retrieval", 0) > 0
        return hit and (bool(record.control) or place(record) not in self.identified)

    def is_found(self, record: Record, search: str) -> bool:
        """As `is_identified`, by any search. The nearest is among the five nearest, whatever was believed before."""
        if search == "retrieval":
            return self.is_identified(record)
        new = bool(record.control) or (search, place(record)) not in self.otherwise
        hit = record.scores.get(search, 0) > 0 and new
        return hit or (search in WIDER and self.is_found(record, WIDER[search]))

    def is_leaked(self, record: Record) -> bool:
        """Without a gallery the squared error alone decides."""
        scores = record.scores
        if record.status != "ok" or "psnr" not in scores:
            return False
        return scores.get("retrieval", 1) > 0 and scores["psnr"] >= self.floor(record) + MARGIN
