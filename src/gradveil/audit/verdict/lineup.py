"""The line-up of one defense, counted: how many pictures the most likely candidate is, among how many.

Trials with pictures of one update are one draw, every stand-in is a draw of its own, and intervals count draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, Literal

from gradveil.audit.results import Run
from gradveil.core.interval import Interval, at_least_of, at_most_of, share_interval
from gradveil.experiment.record import Record

Kind = Literal["exact", "bound", "estimated"]
Key = tuple[str, str]  # scenario and defense
CONTROL = "lineup"
COPIES = ("jpeg", "resized", "brighter")
OFF, NOT_REPLAYED, BESIDE = "line-up-off", "line-up-not-replayed", "line-up-beside"
KINDS: Mapping[str, Kind] = {"line-up-estimated": "estimated", "line-up-bound": "bound"}  # by flag, the weakest first


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Ranks by draw, and the number of candidates of each draw. Rank 1 is named."""

    ranks: tuple[tuple[int, ...], ...]
    candidates: tuple[int, ...]

    def hits(self, top: int = 1) -> int:
        return sum(rank <= top for draw in self.ranks for rank in draw)

    @property
    def of(self) -> int:
        return sum(map(len, self.ranks))

    def shares(self, top: int = 1) -> list[float]:
        """Of each draw the share of its pictures that are among the `top`."""
        return [sum(rank <= top for rank in draw) / len(draw) for draw in self.ranks]

    def share(self, top: int = 1) -> float:
        """The mean over draws, which the interval is about."""
        return fsum(self.shares(top)) / len(self.ranks)

    def interval(self, top: int = 1) -> Interval:
        return share_interval(self.shares(top))

    @property
    def at_most(self) -> float:
        """One-sided, 95 %."""
        return at_most_of(self.shares())

    @property
    def at_least(self) -> float:
        """One-sided, 95 %."""
        return at_least_of(self.shares())

    @property
    def chance(self) -> float:
        """How often guessing names one."""
        return fsum(1 / count for count in self.candidates) / len(self.candidates)


@dataclass(frozen=True, kw_only=True)
class LineUpResult:
    """What the line-up of one defense in one scenario says, before anyone asks whether it can be believed."""

    scenario: str
    defense: str
    own: Trials
    near: Mapping[str, Trials]  # by copy: a near copy among the candidates in the picture's place
    in_class: Trials | None  # among candidates of the picture's label; None where labels are not known
    others: Trials | None = field(repr=False)  # of the pictures by the updates of other clients, among those alike
    kind: Kind
    top: int = 1  # tries that the attacks had at each picture
    searched: int = 1  # pictures that a try may name in the widest search that was read: 5 with `retrieval-top5`
    beside: bool = False  # whether more than the update leaves the client, which the line-up does not look at

    @property
    def hits(self) -> int:
        return self.own.hits()

    @property
    def of(self) -> int:
        return self.own.of

    @property
    def candidates(self) -> int:
        """The fewest, where line-ups differ."""
        return min(self.own.candidates)

    @property
    def nearest_copy(self) -> str:
        """The kind of copy that is named most often; nothing where none was shown."""
        return max(self.near, key=lambda name: self.near[name].hits(), default="")

    def ceiling(self, top: int) -> float:
        """The largest share that one of `top` guesses finds, with 95 % confidence. Who knows the label guesses best."""
        among = [self.own, *([] if self.in_class is None else [self.in_class])]
        return max(trials.interval(top).high for trials in among)

    def to_json(self) -> dict[str, Any]:
        between = self.own.interval()
        wide = self.top * self.searched
        return {
            "hits": self.hits,
            "of": self.of,
            "candidates": self.candidates,
            "share": self.own.share(),
            "low": between.low,
            "high": between.high,
            "at_most": self.own.at_most,
            "chance": self.own.chance,
            "kind": self.kind,
            "exact": self.kind == "exact",
            "near_hits": {name: trials.hits() for name, trials in self.near.items()},
            "in_class": None if self.in_class is None else _count(self.in_class, 1),
            "top": {str(top): _count(self.own, top) for top in dict.fromkeys((self.top, wide))},
        }


def _count(trials: Trials, top: int) -> dict[str, Any]:
    between = trials.interval(top)
    counts = {"hits": trials.hits(top), "of": trials.of, "candidates": min(trials.candidates)}
    return counts | {"low": between.low, "high": between.high, "chance": min(1.0, top * trials.chance)}


def collect_line_ups(run: Run) -> dict[Key, list[Record]]:
    """By scenario and defense. Of a line that was written twice, the one that names more counts."""
    found: dict[Key, dict[tuple[str, int], Record]] = {}
    for record in run.records:
        if record.control == CONTROL:
            own, place = found.setdefault((record.scenario, record.defense), {}), (record.client, record.example)
            own[place] = max(own.get(place, record), record, key=_count_named)
    return {key: list(own.values()) for key, own in found.items()}


def _count_named(record: Record) -> int:
    return sum(rank == 1 for rank in record.ranks.get("rank", ())) if record.status == "ok" else -1


def is_sound(record: Record) -> bool:
    """Whether it has ranks, and all of them are places among its candidates."""
    count, ranks = record.ranks.get("candidates", []), record.ranks.get("rank", [])
    if record.status != "ok" or len(count) != 1 or count[0] < 2 or not ranks:
        return False
    return all(1 <= rank <= count[0] for name in ("rank", "rank-of-another") for rank in record.ranks.get(name, ()))


def count_line_up(records: Sequence[Record], top: int = 1, searched: int = 1) -> LineUpResult | None:
    """`top`, `searched`: see `LineUpResult`. None: no record has ranks."""
    sound = [record for record in records if is_sound(record)]
    if not sound:
        return None
    flags = {flag for record in sound for flag in record.flags}
    kinds: list[Kind] = [kind for flag, kind in KINDS.items() if flag in flags]
    copies = ((name, _trials(sound, f"rank-{name}", _all_candidates)) for name in COPIES)
    return LineUpResult(
        scenario=sound[0].scenario,
        defense=sound[0].defense,
        own=_trials(sound, "rank", _all_candidates),
        near={name: trials for name, trials in copies if trials.ranks},
        in_class=_in_class(sound),
        others=_by_others(sound),
        kind=kinds[0] if kinds else "exact",
        top=top,
        searched=searched,
        beside=BESIDE in flags,
    )


def _in_class(records: Iterable[Record]) -> Trials | None:
    """A class of one picture is no line-up."""
    found = _trials([r for r in records if _class_candidates(r) > 1], "rank-in-class", _class_candidates)
    return found if found.ranks else None


def _by_others(records: Iterable[Record]) -> Trials | None:
    found = _trials([r for r in records if "rank-of-another" in r.ranks], "rank-of-another", _candidates_alike)
    return found if found.ranks else None


def _candidates_alike(record: Record) -> int:
    return record.ranks.get("candidates-of-another", record.ranks["candidates"])[0]


def _all_candidates(record: Record) -> int:
    return record.ranks["candidates"][0]


def _class_candidates(record: Record) -> int:
    return next(iter(record.ranks.get("candidates-in-class", ())), 0)


def _trials(records: Iterable[Record], name: str, count: Callable[[Record], int]) -> Trials:
    """The own pictures of one client are one draw; every stand-in is another."""
    own: dict[str, list[tuple[int, int]]] = {}
    alone: list[tuple[int, int]] = []
    for record in records:
        ranks = record.ranks.get(name, [])
        own.setdefault(record.client, []).extend((rank, count(record)) for rank in ranks[:1])
        alone += [(rank, count(record)) for rank in ranks[1:]]
    draws = [*(draw for draw in own.values() if draw), *([one] for one in alone)]
    return Trials(
        ranks=tuple(tuple(rank for rank, _ in draw) for draw in draws),
        candidates=tuple(min(count for _, count in draw) for draw in draws),
    )
