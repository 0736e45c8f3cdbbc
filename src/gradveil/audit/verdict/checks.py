"""Controls: whether these attacks can be believed at all, and what they show of a picture they have not seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.verdict.estimate import CellResult
from gradveil.audit.verdict.leak import IDENTIFICATION, Baselines
from gradveil.audit.verdict.negative_control import beats_guessing
from gradveil.core.interval import rate_interval
from gradveil.experiment.record import Record

FIRST = IDENTIFICATION.name
POSITIVE_NEEDS = 0.9  # of the undefended pictures of the diagnostic regime must leak or be identified
RARE = 0.05
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

    def to_json(self) -> dict[str, Any]:
        return {"said" if name == "message" else name: value for name, value in vars(self).items()}


def _check(scenario: str, pictures: int, failed: int, hits: int, passed: bool, message: str) -> Check:
    between = rate_interval(hits, pictures)
    share = hits / pictures if pictures else 0.0
    return Check(scenario=scenario, attempted=pictures, failed=failed, hits=hits, rate=share, low=between.low,
                 high=between.high, passed=passed, message=message)  # fmt: skip


def by_picture(records: Sequence[Record]) -> Mapping[tuple[str, str, int], list[Record]]:
    found: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in records:
        found[record.scenario, record.client, record.example].append(record)
    return found


def check_positive(run: Run, baselines: Baselines) -> Check | None:
    """The same attacks where they have it easiest: undefended, alone in the batch, an early model."""
    scenario = easiest_scenario(run)
    records = [r for r in run.records if r.scenario == scenario and not r.control and run.undefended(r.defense)]
    if not records:
        return None
    pictures = by_picture(records)
    seen = baselines.is_identified if _guessing_is_rare(run, records) else baselines.is_leaked
    hits = sum(any(baselines.is_leaked(r) or seen(r) for r in of_one) for of_one in pictures.values())
    failed = sum(record.status == "failed" for record in records)
    enough = hits >= POSITIVE_NEEDS * len(pictures)
    believed = enough and failed <= MOST_FAILED * len(records)
    message = f"without a defense these attacks recover {hits} of {len(pictures)} pictures"
    if not enough:
        message += f", but at least {100 * POSITIVE_NEEDS:.0f} % are needed"
    elif not believed:
        message += f", but {failed} of {len(records)} trials failed"
    return _check(str(scenario), len(pictures), failed, hits, believed, message)


def _guessing_is_rare(run: Run, records: Sequence[Record]) -> bool:
    """Whether being identified says something by itself: by chance it happens to one picture in twenty at most."""
    tries = len({record.attack for record in records})
    return run.gallery is not None and 1 - (1 - 1 / run.gallery) ** tries <= RARE


def easiest_scenario(run: Run) -> str | None:
    """The scenario of the positive control."""
    roles = run.scenarios
    chosen = [name for name, about in roles.items() if about.get("role") == "control"]
    chosen += [name for name, about in roles.items() if about.get("regime") == "diagnostic"]
    return chosen[0] if chosen else None


def check_negative(run: Run, kind: str) -> Check | None:
    """Pictures identified by an attack that has not seen their update; by chance a few are."""
    records = [r for r in run.records if r.control == kind and r.status == "ok" and FIRST in r.scores]
    failed = sum(r.status == "failed" for r in run.records if r.control == kind)
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
    return _check(scenarios, len(records), failed, hits, passed, message)


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
    """Converged: twice the steps change the rate by less than its interval's half width, and the loss by under 1 %."""
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
    return Convergence(attack=longer.attack, leaked=before, leaked_doubled=after, of=len(own), loss=losses[0],
                       loss_doubled=losses[1], converged=steady and fell < 0.01)  # fmt: skip


def count_missing(run: Run, baselines: Baselines) -> int:
    there = sum(record.control != "another" for record in run.records)
    planned = run.provenance.get("trials")
    return 0 if planned is None else max(0, planned - there - count_dropped(run, baselines))


def count_dropped(run: Run, baselines: Baselines) -> int:
    """Trials of clients all of whose pictures had leaked to attacks earlier in the order."""
    order = {str(label): place for place, label in enumerate(run.provenance.get("order") or ())}
    leaked_at: dict[tuple[str, ...], dict[int, int]] = defaultdict(dict)  # client -> picture -> place in the order
    pictures: dict[tuple[str, ...], set[int]] = defaultdict(set)
    attackers: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for record in (r for r in run.records if not r.control and r.attack in order):
        client = record.scenario, record.defense, record.client
        pictures[client].add(record.example)
        attackers[client[:2]].add(record.attacker)
        if baselines.is_leaked(record):
            first = leaked_at[client].get(record.example, len(order))
            leaked_at[client][record.example] = min(first, order[record.attack])
    gone = {c: max(leaked_at[c].values()) for c, own in pictures.items() if leaked_at[c].keys() == own}
    return sum((len(order) - 1 - at) * len(pictures[c]) * len(attackers[c[:2]]) for c, at in gone.items())
