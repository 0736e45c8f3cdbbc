"""What a run has not come to, and what of it keeps a verdict open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradveil.audit.results import Run
from gradveil.audit.verdict.completeness import count_missing, dropped_at
from gradveil.audit.verdict.leak import Baselines
from gradveil.audit.verdict.reach import Reach, find_reach, is_timed, list_searches

if TYPE_CHECKING:
    from gradveil.audit.verdict.tally import Tally


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """What a run has not come to. bounding: trials that a line-up or certificate waits for."""

    trials: int
    bounding: int
    reach: Reach | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        if self.reach is not None and self.reach.sentence:
            return (self.reach.sentence,)
        after = f"After {self.reach.seconds:.0f} s the" if self.reach is not None else "The"
        return (f"{after} run is not finished: {self.trials} trials are missing.",) if self.trials else ()


def find_unfinished(run: Run, tally: Tally, baselines: Baselines, missing: int) -> Unfinished:
    """What no attack can see does not wait for searches: they take what time there is."""
    if not is_timed(run):
        return Unfinished(trials=missing, bounding=missing)
    reach = find_reach(run, tally.scenario, tally.defense, dropped_at(run, baselines))
    return Unfinished(trials=missing, bounding=count_missing(run, baselines, list_searches(run)), reach=reach)
