"""Trials that were planned and are not there. In a sequence of attacks, pictures that leaked drop out on purpose."""

from __future__ import annotations

from collections import defaultdict

from gradveil.audit.results import Run
from gradveil.audit.verdict.leak import Baselines


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
