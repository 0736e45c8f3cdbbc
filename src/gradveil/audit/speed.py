"""How long the pieces of a run take, as far as others of their kind have been run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from gradveil.audit.ladder import base_of, takes_steps
from gradveil.audit.lineup_plan import SHARED, LineUpCell, auto_size
from gradveil.audit.pieces import Group, evaluations
from gradveil.experiment.record import Record

CANDIDATE = 0.33  # of an evaluation of a search costs a candidate of a line-up, where none has been held yet
Kind = tuple[str, ...]


@dataclass
class Speed:
    """By kind what was measured: seconds for each client against its evaluations, or for each candidate of a line-up.

    `step`: seconds of an evaluation of a search on one client of the audited scenario, as far as it is known.
    """

    step: float = 0.0
    known: dict[Kind, dict[float, float]] = field(default_factory=dict)

    def estimate(self, job: Group | LineUpCell) -> float:
        """Seconds; 0 where nothing is known."""
        kinds, count, work = describe(job)
        points = next((self.known[kind] for kind in kinds if kind in self.known), {})
        return count * extrapolate(points, work, self.step * self._weight(job))

    def expect(self, jobs: Iterable[Group]) -> float | None:
        """Seconds of all of them, one after the other; None where of one nothing is known."""
        jobs = [job for job in jobs if job]
        return sum(map(self.estimate, jobs)) if all(map(self.is_measured, jobs)) else None

    def is_measured(self, job: Group | LineUpCell) -> bool:
        """Whether another one of its kind has been run."""
        return any(kind in self.known for kind in describe(job)[0])

    def _weight(self, job: Group | LineUpCell) -> float:
        return CANDIDATE if isinstance(job, LineUpCell) else float(is_search(job))

    def learn(self, job: Group | LineUpCell, results: Any, seconds: float | None) -> None:
        """seconds: that it took; None: as its records say, since others ran beside it."""
        kinds, count, work = describe(job)
        took = sum(record.seconds for record in records_of(results)) if seconds is None else seconds
        for kind in kinds:
            self.known.setdefault(kind, {})[work] = took / count

    def learn_least(self, job: Group | LineUpCell, seconds: float) -> None:
        """It takes longer than that."""
        kinds, count, work = describe(job)
        points = self.known.setdefault(kinds[0], {})
        points[work] = max(seconds / count, points.get(work, 0.0))


def extrapolate(points: Mapping[float, float], work: float, each: float) -> float:
    """Seconds of so much work, on the line through the two largest that were measured; each: of one unit, if known.

    >>> extrapolate({10: 2.0, 40: 5.0}, 100, 0.0), extrapolate({10: 2.0}, 20, 0.1), extrapolate({}, 20, 0.1)
    (11.0, 3.0, 2.0)
    """
    if not points:
        return work * each
    below, last = ([None, *sorted(points)])[-2:]
    assert last is not None
    if work in points:
        return points[work]
    if below is None:
        slope = min(each or points[last] / last, points[last] / last)
    else:
        slope = max(0.0, (points[last] - points[below]) / (last - below))
    return max(0.0, points[last] + slope * (work - last))


def is_search(job: Group | LineUpCell) -> bool:
    return not isinstance(job, LineUpCell) and takes_steps(job[0].method)


def describe(job: Group | LineUpCell) -> tuple[list[Kind], float, float]:
    """What it is like, the most alike first; on how many clients or pictures; and how much work on each."""
    if isinstance(job, LineUpCell):
        kind = ("line-up", job.scenario.name)
        return [(*kind, job.label), kind], count_looks(job), float(job.candidates)
    cell, clients = job[0], len(job[0].scenario.names)
    if not is_search(job):
        return [("closed", *cell.place[:3], cell.control), ("closed", cell.attack)], clients, 1.0
    kind = ("search", cell.scenario.name)
    base = base_of(cell.attack)
    kinds: list[Kind] = [(*kind, base, cell.label, cell.control), (*kind, base), kind, ("search",)]
    return kinds, clients, float(max(1, evaluations(job)) / clients)


def count_looks(cell: LineUpCell) -> float:
    """How often the candidates are gone through, in clients: where all places share that, once for each label."""
    if auto_size(cell.scenario, cell.defense) != SHARED:
        return len(cell.places)
    labels = {tuple(row) for row in cell.scenario.private.labels.flatten(0, 1).flatten(1).tolist()}
    return min(len(cell.places), len(labels)) / cell.scenario.private.images.shape[1]


def records_of(results: Iterable[Any]) -> list[Record]:
    """Of a line-up, or of the trials of a shard."""
    return list(chain.from_iterable([one] if isinstance(one, Record) else one.records for one in results))
