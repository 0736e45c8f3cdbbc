"""How long an audit takes, before it starts: a few steps of each kind of cell are run, and the rest is counted.

An attack says how often it plays a client's round again (`Attack.evaluations`), at least and at most: a race that finds
its picture soon is done soon. What takes no steps is run whole on one client. Of a large model a step is measured once,
since every defense costs about the same beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

from gradveil.audit.audit import Audit, applicable, judge_of
from gradveil.audit.lineup import gallery_of, hold_lineup
from gradveil.audit.lineup_plan import SHARED, LineUpCell, auto_size, plan_lineups
from gradveil.audit.plan import Cell, clients_of
from gradveil.audit.probe import PROBE, Cost, first_of, time_search, timed
from gradveil.audit.schedule import shards
from gradveil.audit.score import Judge
from gradveil.audit.trial import run_cell
from gradveil.audit.validate import check
from gradveil.core.compute import Compute
from gradveil.lineup.candidates import Gallery

SLOW = 0.05  # seconds of one client's step or closed form, above which it is measured once for all defenses
CANDIDATES = (4, 12)  # by which a line-up is timed; a quarter of them where a step is slow


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some of an audit's work, in seconds."""

    name: str
    least: float
    most: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What an audit will take, in seconds, and what it took to find out."""

    parts: tuple[Part, ...]
    measured: float

    @property
    def least(self) -> float:
        return sum(part.least for part in self.parts)

    @property
    def most(self) -> float:
        return sum(part.most for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        parts = [asdict(part) for part in self.parts]
        return {"least": self.least, "most": self.most, "measured": self.measured, "parts": parts}


@dataclass
class Rates:
    """What has been measured so far, by kind of cell."""

    judge: Judge
    gallery: Gallery | None
    rough: bool = False  # by one step of one client alone: in a moment, and no less than it takes
    costs: dict[tuple[Any, ...], Cost] = field(default_factory=dict)

    def of_cell(self, cell: Cell) -> Part:
        """A cell by its evaluations; one that takes no steps by a run on its first client."""
        if cell.repeats and cell.attacker == "adaptive":
            return Part(name=cell.attack, least=0.0, most=0.0)
        if cell.method.evaluations is None and self.rough:
            return Part(name=cell.attack, least=0.0, most=0.0)
        if cell.method.evaluations is None:
            seconds = len(cell.scenario.names) * self.of_closed_form(cell).fixed
            return Part(name=cell.attack, least=seconds, most=seconds)
        cost = self.of_steps(cell)
        least, most = cell.method.evaluations
        return Part(name=cell.attack, least=cost.fixed + least * cost.each, most=cost.fixed + most * cost.each)

    def of_closed_form(self, cell: Cell) -> Cost:
        """On one client. What takes long is run once for all defenses."""
        for_all = ("whole", cell.scenario.name, cell.attack)
        if for_all in self.costs and self.costs[for_all].fixed > SLOW:
            return self.costs[for_all]
        found = self._remember(("whole", *cell.place), lambda: Cost(fixed=self._run_first(cell), each=0.0))
        return self.costs.setdefault(for_all, found)

    def of_steps(self, cell: Cell) -> Cost:
        """By a plain search on one client; where that is quick by the attack itself, cut short, on all of them."""
        names = cell.scenario.names
        first = self._remember((cell.scenario.name, "step"), lambda: time_search(first_of(cell), self.judge, PROBE))
        if self.rough or first.each > SLOW:
            return Cost(fixed=first.fixed * len(names), each=first.each * len(names))
        known = cell.label if cell.attacker == "adaptive" else ""
        kind = (cell.scenario.name, cell.attack, known, cell.control == "prior", len(names))
        return self._remember(kind, lambda: time_search(cell, self.judge, cell.method, first.each))

    def of_lineup(self, cell: LineUpCell) -> Part:
        assert self.gallery is not None
        places = len(cell.scenario.names) * cell.scenario.private.images.shape[1]
        cost = self._remember((cell.scenario.name, cell.label, "line-up"), lambda: self._time_lineup(cell))
        labels = len({tuple(one.flatten().tolist()) for one in cell.scenario.private.labels.flatten(0, 1)})
        shared = auto_size(cell.scenario, cell.defense) == SHARED
        seconds = cost.fixed * places + cost.each * len(cell.rows) * (labels if shared else places)
        return Part(name="line-up", least=seconds, most=seconds)

    def _time_lineup(self, cell: LineUpCell) -> Cost:
        assert self.gallery is not None
        slow = self.costs.get((cell.scenario.name, "step"), Cost(fixed=0, each=0)).each > SLOW
        counts = [count // 4 if slow else count for count in CANDIDATES]
        one = replace(cell, scenario=clients_of(cell.scenario, slice(1)), standins=0)
        few, more = (timed(hold_lineup, replace(one, rows=cell.rows[:n]), self.gallery) for n in counts)
        each = max(more - few, 0.0) / (counts[1] - counts[0])
        return Cost(fixed=(1 + cell.standins) * max(few - each * counts[0], 0.0), each=each)

    def _run_first(self, cell: Cell) -> float:
        return timed(run_cell, first_of(cell), self.judge)

    def _remember(self, kind: tuple[Any, ...], measure: Any) -> Cost:
        if kind not in self.costs:
            self.costs[kind] = measure()
        return self.costs[kind]


def estimate(
    audit: Audit, compute: Compute = Compute(), rates: Rates | None = None, *, rough: bool = False
) -> Estimate:
    """Measure a few steps of each kind and count the rest. Writes nothing.

    rates: of an audit of the same scenarios with other efforts, so that nothing is measured twice. rough: by one step
    of one client, without closed forms and line-ups.
    """
    start = time.perf_counter()
    check(audit, compute)
    audit, _ = applicable(audit)
    rates = rates or rates_of(audit, rough=rough)
    with compute.active():
        cells = chain.from_iterable(shards(audit, compute, compute.shard))
        parts = [*map(rates.of_cell, cells)]
        lineups = () if rates.rough else plan_lineups(audit, compute, compute.shard)
        parts += map(rates.of_lineup, lineups)
    return Estimate(parts=tuple(add_up(parts)), measured=time.perf_counter() - start)


def rates_of(audit: Audit, *, rough: bool = False) -> Rates:
    """Nothing is measured yet."""
    return Rates(judge=judge_of(audit), gallery=gallery_of(audit), rough=rough)


def add_up(parts: Iterable[Part]) -> Iterator[Part]:
    """One part for each name."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.name, []).append(part)
    for name, some in found.items():
        yield Part(name=name, least=sum(part.least for part in some), most=sum(part.most for part in some))
