"""How long one step of a search takes: by a run of few evaluations and one of twice as many."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from gradveil.attacks.invertgrad import invertgrad
from gradveil.audit.ladder import count_most
from gradveil.audit.memory import Memory
from gradveil.audit.plan import Cell
from gradveil.audit.score import Judge
from gradveil.audit.trial import run_cell
from gradveil.core.attack import Attack

PROBE = invertgrad(steps=1000, restarts=1, tv=1e-2)  # what a step is timed by first
FEW = 2  # evaluations to begin with
BEGIN, TELLING = 0.1, 0.3  # seconds: to begin with, and of a difference between two runs that is no chance


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of a cell on all of its clients: what it takes anyway, and each evaluation."""

    fixed: float
    each: float


def time_search(cell: Cell, judge: Judge, method: Attack, each: float = 0.0) -> Cost:
    """By a run of few evaluations and one of twice as many; twice as many again until the difference tells something.

    each: seconds of one evaluation, as far as they are known: it says how many to begin with.
    """
    assert method.evaluations is not None
    total = method.evaluations[1]
    short = shorten(method, min(max(FEW, BEGIN / each if each else FEW), total / 4) / total)
    few, count = run_search(cell, judge, short), count_most(short)
    while True:
        longer = shorten(short, 2.0)
        more, twice = run_search(cell, judge, longer), count_most(longer)
        if more - few > TELLING or 2 * twice > total:
            seconds = max(more - few, 0.0) / max(twice - count, 1)
            return Cost(fixed=max(few - count * seconds, 0.0), each=seconds)
        short, few, count = longer, more, twice


def shorten(method: Attack, share: float) -> Attack:
    found = method.scaled(share)
    assert found is not None, "what counts evaluations takes steps"
    return found


def run_search(cell: Cell, judge: Judge, method: Attack) -> float:
    """Seconds; what the one who does not know the defense has found is there for the one who does."""
    cell, memory = replace(cell, method=method.prior_only() if cell.control == "prior" else method), Memory()
    if cell.attacker == "adaptive":
        threat = replace(cell.scenario.threat, knows_defense=False)
        run_cell(replace(cell, attacker="unaware", scenario=replace(cell.scenario, threat=threat)), judge, memory)
    return timed(run_cell, cell, judge, memory)


def timed(work: Any, *given: Any) -> float:
    start = time.perf_counter()
    work(*given)
    return time.perf_counter() - start


def first_of(cell: Cell) -> Cell:
    """On its first client."""
    return cell.only(cell.scenario.names[:1])
