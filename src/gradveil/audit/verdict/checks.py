"""Controls: what attacks show of a picture that they have not seen, and whether their searches had come to an end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradveil.audit.ladder import is_whole
from gradveil.audit.results import Run
from gradveil.audit.verdict.estimate import CellResult
from gradveil.audit.verdict.leak import IDENTIFICATION, Baselines
from gradveil.audit.verdict.negative_control import beats_guessing
from gradveil.core.interval import rate_interval
from gradveil.experiment.record import Record

FIRST = IDENTIFICATION.name
AGAINST_BLANK = Baselines({}, frozenset())  # a control has no other baseline, so its counterpart must have none
MOST_FAILED = 0.02  # of the trials; more, and nothing can be said


@dataclass(frozen=True, kw_only=True)
class Check:
    """One control. `hits` counts leaked or identified pictures in the positive control, identified ones elsewhere."""

    scenario: str
    attempted: int  # pictures
    failed: int  # trials
    hits: int
    rate: float
    low: float
    high: float
    passed: bool
    message: str
    attack: str = ""  # of one attack alone

    def to_json(self) -> dict[str, Any]:
        return {"said" if name == "message" else name: value for name, value in vars(self).items()}


def check_of(
    scenario: str, pictures: int, failed: int, hits: int, passed: bool, message: str, attack: str = ""
) -> Check:
    between = rate_interval(hits, pictures)
    share = hits / pictures if pictures else 0.0
    return Check(scenario=scenario, attempted=pictures, failed=failed, hits=hits, rate=share, low=between.low,
                 high=between.high, passed=passed, message=message, attack=attack)  # fmt: skip


def by_picture(records: Sequence[Record]) -> Mapping[tuple[str, str, int], list[Record]]:
    found: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        found[record.scenario, record.client, record.example].append(record)
    return found


def check_negative(run: Run, kind: str) -> Check | None:
    """Pictures identified by an attack that has not seen their update; by chance a few are.

    Smaller efforts have controls of pictures alone that they hit, which are no sample.
    """
    controls = [r for r in run.records if r.control == kind and is_whole(r.attack)]
    records = [r for r in controls if r.status == "ok" and FIRST in r.scores]
    failed = sum(r.status == "failed" for r in controls)
    if not records:
        return None
    hits = sum(r.scores[FIRST] > 0 for r in records)
    chance = 1 / run.gallery if run.gallery else 1.0
    passed = not beats_guessing(records, FIRST, chance)
    message = f"{hits} of {len(records)} identified (random guessing: {100 * chance:.2f} %)"
    if not passed:
        message += (
            ": more than guessing explains, so the attack knew these pictures before; they are not counted as leaked"
        )
    scenarios = ", ".join(dict.fromkeys(r.scenario for r in records))
    return check_of(scenarios, len(records), failed, hits, passed, message)


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """One attack against itself with twice the steps, on the same undefended pictures."""

    attack: str
    leaked: int
    leaked_doubled: int
    of: int
    loss: float
    loss_doubled: float
    converged: bool

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)}


def check_convergence(run: Run, cells: Sequence[CellResult]) -> list[Convergence]:
    """Converged: twice the steps change the rate by less than its interval's half width, and the loss by under 1 %.

    Where every picture leaks with either number of steps, the loss has nothing more to say.
    """
    found = []
    for longer in (cell for cell in cells if cell.control == "doubled"):
        trials = {(r.client, r.example) for r in longer.records if r.status == "ok"}
        own = [
            r
            for r in run.records
            if (r.scenario, r.attack, r.control) == (longer.scenario, longer.attack, "")
            and run.undefended(r.defense)
            and r.status == "ok"
            and (r.client, r.example) in trials
        ]
        if own:
            found.append(_compare(longer, own))
    return found


def _compare(longer: CellResult, own: Sequence[Record]) -> Convergence:
    there = {(r.client, r.example) for r in own}
    doubled = [r for r in longer.records if (r.client, r.example) in there]
    before, after = (sum(map(AGAINST_BLANK.is_leaked, some)) for some in (own, doubled))
    losses = [sum(r.loss or 0.0 for r in some) / len(some) for some in (own, doubled)]
    between = rate_interval(before, len(own))
    steady = abs(after - before) / len(own) < (between.high - between.low) / 2
    fell = abs(losses[1] - losses[0]) / max(abs(losses[0]), 1e-12)
    at_its_end = fell < 0.01 or before == after == len(own)
    return Convergence(attack=longer.attack, leaked=before, leaked_doubled=after, of=len(own), loss=losses[0],
                       loss_doubled=losses[1], converged=steady and at_its_end)  # fmt: skip
