"""The words behind "no leak found under ...": which attacks, how hard, and what they knew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.verdict.attack_summary import describe_effort

WHO = {
    "eavesdropper": "an eavesdropper",
    "curious": "an honest-but-curious server",
    "malicious": "a malicious server",
}


def describe_conditions(run: Run) -> str:
    """One line; the assumption ledger of the report has the rest."""
    scenario = run.scenario
    parts = [
        ", ".join(_attack(label, run.choices("attack").get(label, {})) for label in _attacks(run)),
        WHO.get(str(scenario.get("attacker")), "an attacker that is not stated"),
        f"labels {scenario.get('labels', 'not stated')}",
        f"batch size {scenario.get('batch_size', 'not stated')}",
        f"{scenario.get('local_steps', 'not stated')} local {'step' if scenario.get('local_steps') == 1 else 'steps'}",
        *_together(scenario),
        f"{_pictures(run)} pictures",
        f"seed {run.config.get('seed', 'not stated')}",
    ]
    return "; ".join(parts)


def _together(scenario: Mapping[str, Any]) -> Iterator[str]:
    """What makes an update harder or easier to read than one round of one client."""
    if (clients := scenario.get("aggregate", 1)) != 1:
        yield f"sums over {clients} clients"
    if (rounds := scenario.get("rounds", 1)) != 1:
        yield f"{rounds} rounds"


def _pictures(run: Run) -> int:
    """Of the scenario that was asked about; variations and controls have their own."""
    others = {name for name, about in run.scenarios.items() if about.get("role") != "audited"}
    return len({(r.client, r.example) for r in run.records if not r.control and r.scenario not in others})


def _attacks(run: Run) -> list[str]:
    return list(dict.fromkeys(record.attack for record in run.records))


def _attack(label: str, choice: Any) -> str:
    """With its steps and restarts, where it has them."""
    effort = describe_effort(choice)
    return f"{label} ({effort})" if effort else label
