"""What the run was to do and has not done: by trial, so that a line written twice hides no line that is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from gradveil.audit.results import Run
from gradveil.audit.verdict.leak import Baselines

Client = tuple[str, str, str]  # scenario, defense, client


def count_missing(run: Run, baselines: Baselines, besides: Collection[str] = ()) -> int:
    """Planned trials without a record, but for clients all of whose pictures earlier attacks had recovered whole.

    besides: attacks that are left out of the count.
    """
    there = {(r.scenario, r.defense, r.attack, r.control or r.attacker, r.client, r.example) for r in run.records}
    dropped = dropped_at(run, baselines)
    order = {str(label): place for place, label in enumerate(run.provenance.get("order") or ())}
    missing = 0
    for cell, clients, examples in planned_cells(run):
        scenario, defense, attack, _ = cell
        if attack in besides:
            continue
        for place, client in enumerate(clients):
            at = dropped.get((scenario, defense, client), len(order))
            if order.get(attack, -1) > at and not _is_control(run, defense, place):
                continue
            missing += sum((*cell, client, example) not in there for example in range(examples))
    return missing


def planned_cells(run: Run) -> Iterator[tuple[tuple[str, str, str, str], Sequence[str], int]]:
    """Scenario, defense, attack and kind of every cell, its clients, and the pictures of each; none in an older run."""
    for scenario, defense, attack, kind, count in run.plan.get("cells", ()):
        examples = run.scenarios.get(scenario, {}).get("batch_size", 1)
        yield (scenario, defense, attack, kind), run.clients(scenario)[:count], examples


def dropped_at(run: Run, baselines: Baselines) -> dict[Client, int]:
    """Clients with no picture left: the place, in the order, of the attack that recovered the last of them."""
    least = run.provenance.get("whole")
    least = least if isinstance(least, int | float) else None
    order = {str(label): place for place, label in enumerate(run.provenance.get("order") or ())}
    leaked_at: dict[Client, dict[int, int]] = defaultdict(dict)
    pictures: dict[Client, set[int]] = defaultdict(set)
    for record in (r for r in run.records if not r.control and r.attack in order):
        client = record.scenario, record.defense, record.client
        pictures[client].add(record.example)
        if baselines.is_whole(record, least):
            first = leaked_at[client].get(record.example, len(order))
            leaked_at[client][record.example] = min(first, order[record.attack])
    return {c: max(leaked_at[c].values()) for c, own in pictures.items() if leaked_at[c].keys() == own}


def _is_control(run: Run, defense: str, place: int) -> bool:
    """Whether it is one of the undefended clients that every attack shows its worth on."""
    size = run.provenance.get("shard")
    return isinstance(size, int) and place < size and run.undefended(defense) and not run.captured
