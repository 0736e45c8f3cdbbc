"""How far a run with limited time came: which share of their steps the searches reached, on how many clients."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradveil.audit.ladder import RUNGS, base_of, is_whole, rung_of
from gradveil.audit.results import Run
from gradveil.audit.verdict.completeness import planned_cells
from gradveil.experiment.record import Attacker, Record

ATTACKERS: tuple[Attacker, ...] = ("unaware", "adaptive")


@dataclass(frozen=True, kw_only=True)
class AttackReach:
    """One attack on one defense: of its planned clients, how many were attacked with which part of its steps."""

    attack: str
    clients: int
    reached: Mapping[int, int]  # by one in how many steps: clients with no more than that; 1 is the whole attack

    @property
    def sentence(self) -> str:
        if not self.reached:
            return f"{self.attack} was not run"
        parts = [f"{_share(rung)} on {count} of {self.clients} clients" for rung, count in sorted(self.reached.items())]
        return f"{self.attack} reached {', '.join(parts)}"

    @property
    def is_whole(self) -> bool:
        return self.reached.get(1, 0) >= self.clients

    def to_json(self) -> dict[str, Any]:
        return {
            "attack": self.attack,
            "clients": self.clients,
            "reached": {f"1/{rung}" if rung > 1 else "1": count for rung, count in sorted(self.reached.items())},
        }


def _share(rung: int) -> str:
    return "all of its steps" if rung == 1 else f"1/{rung} of its steps"


@dataclass(frozen=True, kw_only=True)
class Reach:
    """All attacks on one defense in one scenario."""

    seconds: float
    attacks: tuple[AttackReach, ...]

    @property
    def sentence(self) -> str:
        """Empty only where every planned attack was run whole."""
        open_ones = [one.sentence for one in self.attacks if not one.is_whole]
        return f"After {self.seconds:.0f} s: {'; '.join(open_ones)}." if open_ones else ""

    def to_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "attacks": [one.to_json() for one in self.attacks]}


def list_searches(run: Run) -> frozenset[str]:
    stated = run.provenance.get("searches")
    return frozenset(stated) if isinstance(stated, list) else frozenset()


def is_timed(run: Run) -> bool:
    """Whether its time was limited at some point."""
    return "piece" in run.provenance or any(not is_whole(record.attack) for record in run.records)


def count_seconds(run: Run) -> float:
    """As long as the run took; while it is at work, as long as its trials took."""
    spent = run.provenance.get("spent")
    if run.provenance.get("finished") and isinstance(spent, int | float):
        return float(spent)
    return round(sum(record.seconds for record in run.records), 1)


def find_reach(run: Run, scenario: str, defense: str, dropped: Collection[tuple[str, str, str]]) -> Reach:
    """dropped: scenario, defense and client of those that were recovered whole, and need no other attack."""
    planned: dict[str, tuple[set[str], Sequence[str]]] = {}
    for (where, label, attack, kind), clients, _ in planned_cells(run):
        if (where, label) == (scenario, defense) and kind in ATTACKERS:
            planned.setdefault(attack, (set(), clients))[0].add(kind)
    own = [r for r in run.records if (r.scenario, r.defense, r.control) == (scenario, defense, "")]
    attacks = []
    for attack, (kinds, clients) in planned.items():
        records = [record for record in own if base_of(record.attack) == attack]
        found = [
            1 if (scenario, defense, client) in dropped else _deepest(records, client, kinds) for client in clients
        ]
        counts = {rung: found.count(rung) for rung in (1, *RUNGS) if rung in found}
        attacks.append(AttackReach(attack=attack, clients=len(clients), reached=counts))
    return Reach(seconds=count_seconds(run), attacks=tuple(attacks))


def _deepest(records: Sequence[Record], client: str, kinds: set[str]) -> int | None:
    """The largest part of its steps with which every attacker was run on a client; None: not by all of them."""
    done = {(rung_of(record.attack), record.attacker) for record in records if record.client == client}
    rungs = sorted({rung for rung, _ in done})
    return next((rung for rung in rungs if all((rung, kind) in done for kind in kinds)), None)


def planned_tries(run: Run, scenario: str, defense: str) -> int:
    """How many attackers look for each picture before the run is whole, every effort of a search one."""
    searching = list_searches(run)
    return sum(1 + len(RUNGS) * (attack in searching) for attack in _attacks(run, scenario, defense))


def planned_pictures(run: Run, scenario: str, defense: str) -> int:
    return max(
        (
            len(clients) * examples
            for (where, label, _, kind), clients, examples in planned_cells(run)
            if (where, label) == (scenario, defense) and kind in ATTACKERS
        ),
        default=0,
    )


def _attacks(run: Run, scenario: str, defense: str) -> Iterator[str]:
    """One for each attacker."""
    for (where, label, attack, kind), _, _ in planned_cells(run):
        if (where, label) == (scenario, defense) and kind in ATTACKERS:
            yield attack
