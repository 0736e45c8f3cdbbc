"""Gradient masking between attacks: a search that fails on a defense where an attack without slopes succeeds.

The other doubts of this kind are raised on the records, by `gradveil.audit.oracle`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import comb

from gradveil.audit.results import Run
from gradveil.audit.verdict.checks import by_picture
from gradveil.audit.verdict.leak import Baselines
from gradveil.audit.verdict.tally import Tally
from gradveil.experiment.record import Record

SEARCHES = ("loop", "vmap", "sweep")  # back ends that follow slopes; "priors" look at no update
RARE = 0.05  # how often luck may be taken for a difference
WORKS = 0.5  # of the undefended pictures that a search must recover to be called stuck elsewhere


def searches_are_stuck(run: Run, tallies: Sequence[Tally]) -> bool:
    """Whether on some defense attacks without slopes clearly recover more, though without a defense they do not."""
    defended = [tally for tally in tallies if not tally.undefended and tally.has_truth]
    if not defended:
        return False
    baselines = Baselines.of(run.records)
    plain = [r for r in run.records if not r.control and run.undefended(r.defense) and r.has_truth]
    return any(_is_stuck(tally.records, plain, baselines) for tally in defended)


def _is_stuck(records: Sequence[Record], plain: Sequence[Record], baselines: Baselines) -> bool:
    attacks = {record.attack for record in records}
    without, with_ = (_compare(some, baselines) for some in ([r for r in plain if r.attack in attacks], records))
    works = without.pictures and without.by_search >= WORKS * without.pictures
    return bool(works) and with_.is_clear and not without.is_clear


class _Compared:
    """Pictures that both kinds of attack were tried on."""

    def __init__(self, each: Collection[tuple[bool, bool]]) -> None:
        self.pictures, self.by_search = len(each), sum(search for search, _ in each)
        self.only_search = sum(search and not other for search, other in each)
        self.only_other = sum(other and not search for search, other in each)

    @property
    def is_clear(self) -> bool:
        """A sign test: as many or more for the others, if both were alike."""
        tries = self.only_search + self.only_other
        luck = sum(comb(tries, hits) for hits in range(self.only_other, tries + 1)) / 2**tries
        return bool(tries) and luck < RARE


def _compare(records: Sequence[Record], baselines: Baselines) -> _Compared:
    found = []
    for of_one in by_picture([r for r in records if r.status == "ok"]).values():
        kinds = [[r for r in of_one if _follows_slopes(r)],
                 [r for r in of_one if not _follows_slopes(r) and r.backend != "priors"]]  # fmt: skip
        if all(kinds):
            search, other = (any(map(baselines.is_leaked, kind)) for kind in kinds)
            found.append((search, other))
    return _Compared(found)


def _follows_slopes(record: Record) -> bool:
    """A race of searches may name several back ends."""
    return any(backend in SEARCHES for backend in record.backend.split(", "))
