"""When a picture counts as leaked.

Its reconstruction is identified, that is, nearer to the original than to any picture of the gallery, and has at most
half the squared error (3 dB) of what the attacker could show without this picture's update: a blank picture in the
mean color of what is public, and what the same attack made of the negative controls. Both in one and the same guise:
as the picture is, as it was fed to the model, or under symmetries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gradveil.audit.ladder import is_whole
from gradveil.core.interval import at_least
from gradveil.core.metric import FED as AS_FED
from gradveil.core.metric import Facts
from gradveil.experiment.record import Record
from gradveil.metrics import METRICS
from gradveil.metrics.psnr import PSNR
from gradveil.metrics.retrieval import RETRIEVAL
from gradveil.metrics.symmetric import PSNR_SYMMETRIC, RETRIEVAL_SYMMETRIC

CLOSENESS, IDENTIFICATION = PSNR, RETRIEVAL  # the two metrics that decide whether a picture leaked
MARGIN = 3.0  # dB
WHOLE = 40.0  # dB: an error of a hundredth of the range, which nobody sees
NEGATIVE = ("prior", "random", "another")
VETTED = "prior"  # the last control of a picture that a smaller effort has hit
RARE = 0.005  # how often pictures that tell nothing of the private ones may be taken for pictures that do
Place = tuple[str, str, str, int]  # scenario, attack, client, example


@dataclass(frozen=True, kw_only=True)
class Guise:
    """One way to look at a picture: the score that finds it and the score that says how near it is, both of this way.

    words: completes "identified", of several pictures. of_one: of one picture; nothing where that goes without saying.
    """

    name: str
    found: str
    near: str
    words: str
    of_one: str = ""


PRIVATE = Guise(name="private", found=IDENTIFICATION.name, near=CLOSENESS.name, words="as they are")
FED = Guise(
    name="fed",
    found=IDENTIFICATION.name + AS_FED,
    near=CLOSENESS.name + AS_FED,
    words="as they were fed to the model",
    of_one="as it was fed to the model",
)
SYMMETRIC = Guise(
    name="symmetric",
    found=RETRIEVAL_SYMMETRIC.name,
    near=PSNR_SYMMETRIC.name,
    words="mirrored, turned, shifted, negated or in another contrast",
    of_one="mirrored, turned, shifted, negated or in another contrast",
)
GUISES = (PRIVATE, FED, SYMMETRIC)


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

    closeness: Mapping[Place, float]
    identified: frozenset[Place]
    otherwise: frozenset[tuple[str, Place]] = field(default=frozenset())  # by another search than top-1 on pixels
    symmetric: Mapping[Place, float] = field(default_factory=dict)  # closeness under symmetries
    known: frozenset[Place] = field(default=frozenset())  # leaked to an attack without their update
    linked: frozenset[tuple[str, str]] = field(default=frozenset())  # scenario and defense: see `find_linked`
    vetted: frozenset[Place] = field(default=frozenset())  # of smaller efforts: those whose controls are there

    @classmethod
    def of(cls, records: Iterable[Record]) -> Baselines:
        records = list(records)
        controls = [r for r in records if r.control in NEGATIVE and r.status == "ok"]
        others = lookups().keys() - {IDENTIFICATION.name}
        found = cls(
            _nearest(controls, PRIVATE),
            frozenset(place(r) for r in controls if r.scores.get(IDENTIFICATION.name, 0) > 0),
            frozenset((name, place(r)) for r in controls for name in others if r.scores.get(name, 0) > 0),
            _nearest(controls, SYMMETRIC),
            linked=find_linked(records),
            vetted=frozenset(place(r) for r in controls if r.control == VETTED),
        )
        return replace(found, known=frozenset(place(r) for r in controls if found.is_leaked(r)))

    def floor(self, record: Record, guise: Guise = PRIVATE) -> float:
        """The best closeness that needs no update. A control is not its own baseline."""
        if guise is not PRIVATE:
            own = record.floors.get(guise.near, float("inf"))
            controls = self.symmetric if guise is SYMMETRIC else {}
        else:
            own = float("-inf") if record.blank is None else record.blank
            controls = self.closeness
        return own if record.control else max(own, controls.get(place(record), float("-inf")))

    def is_near(self, record: Record, guise: Guise = PRIVATE) -> bool:
        """Whether the squared error is at most half of what needs no update."""
        if not self.counts(record):
            return False
        near = record.scores.get(guise.near)
        return record.status == "ok" and near is not None and near >= self.floor(record, guise) + MARGIN

    def counts(self, record: Record) -> bool:
        """Whether it can be a hit: of a smaller effort only where its controls are there to say what else it may be."""
        return bool(record.control) or is_whole(record.attack) or place(record) in self.vetted

    def is_unvetted_hit(self, record: Record) -> bool:
        """Whether it would be one, by any search, if its controls were there and showed nothing."""
        if self.counts(record) or record.status != "ok" or not record.has_truth:
            return False
        own = replace(self, vetted=self.vetted | {place(record)})
        return own.is_leaked(record) or any(own.is_found(record, name) for name in lookups())

    def identified_as(self, record: Record) -> tuple[Guise, ...]:
        """The guises in which the picture is found in the gallery, by the update and not by what was believed before.

        What a control has found, too, was found by the update where it is nearer than the control by the margin. So
        many symmetries are tried that a picture must be near under one to count.
        """

        def is_enough(guise: Guise) -> bool:
            return self.is_near(record, guise) or (guise is not SYMMETRIC and self._is_new(record, guise))

        return tuple(guise for guise in GUISES if self._is_hit(record, guise) and is_enough(guise))

    def leaked_as(self, record: Record) -> tuple[Guise, ...]:
        """The guises in which the picture is identified and near. Without a gallery the squared error alone decides."""
        if IDENTIFICATION.name not in record.scores:
            return (PRIVATE,) if self.is_near(record) else ()
        return tuple(guise for guise in self.identified_as(record) if self.is_near(record, guise))

    def is_identified(self, record: Record) -> bool:
        """In any guise."""
        return bool(self.identified_as(record))

    def is_leaked(self, record: Record) -> bool:
        """In any guise. A picture that leaked is identified, wherever there was a gallery."""
        return bool(self.leaked_as(record))

    def is_whole(self, record: Record, least: float | None = WHOLE) -> bool:
        """Whether it leaked so well that no other attack need try: the best of all attacks is what is reported.

        least: dB. None: any leak will do, as in runs of earlier versions.
        """
        leaked = self.leaked_as(record)
        return bool(leaked) and (least is None or max(record.scores[guise.near] for guise in leaked) >= least)

    def is_found(self, record: Record, search: str) -> bool:
        """By one search alone. The nearest is among the five nearest, whatever was believed before."""
        if search == IDENTIFICATION.name:
            return PRIVATE in self.identified_as(record)
        new = bool(record.control) or (search, place(record)) not in self.otherwise
        hit = record.scores.get(search, 0) > 0 and new and self.counts(record)
        return hit or any(self.is_found(record, narrower) for narrower in _narrower(search))

    def _is_hit(self, record: Record, guise: Guise) -> bool:
        hit = record.scores.get(guise.found, 0) > 0 and self.counts(record)
        if guise is not FED:
            return hit
        linked = record.fed.get("linked", 0) > 0 and (record.scenario, record.defense) in self.linked
        return hit and linked and place(record) not in self.known

    def _is_new(self, record: Record, guise: Guise) -> bool:
        """Whether no control has found the picture in this guise."""
        if guise is FED:
            return not record.floors.get(guise.found, 0) > 0
        if record.control:
            return True
        here = place(record)
        return here not in self.identified if guise is PRIVATE else (guise.found, here) not in self.otherwise


def _nearest(controls: Iterable[Record], guise: Guise) -> dict[Place, float]:
    best: dict[Place, float] = defaultdict(lambda: float("-inf"))
    for record in controls:
        best[place(record)] = max(best[place(record)], record.scores.get(guise.near, float("-inf")))
    return dict(best)


def find_linked(records: Iterable[Record]) -> frozenset[tuple[str, str]]:
    """Scenarios and defenses whose fed pictures find their private ones more often than chance explains."""
    seen: dict[tuple[str, str], dict[tuple[str, int], Mapping[str, float]]] = defaultdict(dict)
    for record in records:
        if record.fed and not record.control:
            seen[record.scenario, record.defense][record.client, record.example] = record.fed
    return frozenset(where for where, pictures in seen.items() if _beats_chance(list(pictures.values())))


def _beats_chance(pictures: Sequence[Mapping[str, float]]) -> bool:
    """A picture is fed once in all attacks, so it counts once."""
    hits = sum(fed.get("linked", 0) > 0 for fed in pictures)
    return at_least(hits, len(pictures), 1 - RARE) > max(fed.get("chance", 1.0) for fed in pictures)


def guises_of(records: Iterable[Record]) -> tuple[Guise, ...]:
    """The guises in which pictures were looked for: each is one more try for chance."""
    records = list(records)
    measured = {name for record in records for name in record.scores}
    fed = any(record.fed for record in records)
    return tuple(guise for guise in GUISES if guise.found in measured and (guise is not FED or fed))


def count_guises(pictures: Iterable[Sequence[Record]], baselines: Baselines, leaked: bool = True) -> dict[Guise, int]:
    """How many pictures leaked (else: are identified) in which guise. Each counts once, in the first that it has."""
    counts = dict.fromkeys(GUISES, 0)
    for records in pictures:
        seen = {g for r in records for g in (baselines.leaked_as(r) if leaked else baselines.identified_as(r))}
        for guise in GUISES:
            if guise in seen:
                counts[guise] += 1
                break
    return {guise: count for guise, count in counts.items() if count}


def describe_guises(counts: Mapping[Guise, int]) -> str:
    """In words: "2 as they are, 28 as they were fed to the model"; nothing where all are as they are."""
    if not counts.keys() - {PRIVATE}:
        return ""
    return ", ".join(f"{count} {guise.words}" for guise, count in counts.items())


def _narrower(search: str) -> list[str]:
    """Searches of the same kind among fewer pictures: what they find, this one has found."""
    known = lookups()
    own = known[search].lookup if search in known else None
    if own is None:
        return []
    return [name for name, one in known.items() if one.lookup and one.lookup.by == own.by and one.lookup.top < own.top]
