"""The words behind "no leak found under ...": which attacks, how hard, and what they knew."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from gradveil.attacks import ATTACKS
from gradveil.audit.ladder import base_of, is_whole, rung_of
from gradveil.audit.results import Run
from gradveil.core.attack import Attack
from gradveil.core.check import options_of
from gradveil.core.errors import GradveilError

PRIORS = {
    "TotalVariation": "total variation (TV)",
    "Norm": "small values",
    "Box": "values in the box",
    "BatchNormStatistics": "normalization statistics",
}


def steps_and_restarts(choice: Any) -> tuple[int | None, int | None]:
    """None: the attack has no such thing, or it is not known."""
    method, options = build_attack(choice), choice if isinstance(choice, Mapping) else {}
    steps, restarts = (getattr(method, name, options.get(name)) for name in ("steps", "restarts"))
    return steps, restarts


def describe_effort(choice: Any) -> str | None:
    """In words; None if nothing is known of the attack."""
    steps, restarts = steps_and_restarts(choice)
    if steps is None and restarts is None:
        return "closed form, no search" if build_attack(choice) else None
    parts = [_count(steps, "step"), _count(restarts, "restart")]
    return ", ".join(part for part in parts if part)


def describe_share(label: str, choice: Any) -> str | None:
    """The effort of an attack as its label says it: a part of its steps, in a run with limited time."""
    effort = describe_effort(choice)
    return effort if is_whole(label) or effort is None else f"1/{rung_of(label)} of {effort}"


def _count(number: int | None, what: str) -> str:
    return "" if number is None else f"{number:,} {what}{'' if number == 1 else 's'}"


def describe_prior(choice: Any) -> str | None:
    method = build_attack(choice)
    if method is None:
        return None
    found = [PRIORS.get(type(one).__name__, type(one).__name__) for one in getattr(method, "priors", ())]
    return ", ".join(dict.fromkeys(found)) or "none"


def build_attack(choice: Any) -> Attack | None:
    """The attack of the catalogue as it was configured; None for one that this version does not have."""
    given = choice if isinstance(choice, Mapping) else {}
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    factory = ATTACKS.get(str(options.pop("name", "")))
    try:
        return factory(**options) if factory else None
    except (GradveilError, TypeError, ValueError):
        return None


WHO = {
    "eavesdropper": "an eavesdropper",
    "curious": "an honest-but-curious server",
    "malicious": "a malicious server",
}


def describe_conditions(run: Run) -> str:
    """One line; the assumption ledger of the report has the rest."""
    scenario = run.scenario
    parts = [
        ", ".join(_attack(label, run.choices("attack").get(base_of(label), {})) for label in _attacks(run)),
        WHO.get(str(scenario.get("attacker")), "an attacker that is not stated"),
        f"labels {scenario.get('labels', 'not stated')}",
        f"batch size {scenario.get('batch_size', 'not stated')}",
        describe_steps(scenario),
        *_together(scenario),
        f"{_pictures(run)} pictures",
        f"seed {run.config.get('seed', 'not stated')}",
    ]
    return "; ".join(parts)


def describe_steps(scenario: Mapping[str, Any]) -> str:
    """How many, by which optimizer, and whether in an order that the client alone knows."""
    epochs, steps = scenario.get("epochs", 0), scenario.get("local_steps", "not stated")
    count, unit = (epochs, "local epoch") if epochs else (steps, "local step")
    optimizer = scenario.get("optimizer", "sgd")
    found = f"{count} {unit}" + ("" if count == 1 else "s") + ("" if optimizer == "sgd" else f" of {optimizer}")
    return f"{found}, shuffled" if scenario.get("order") == "unknown" else found


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
    """A line-up is none. Of every attack the one with the most steps."""
    labels = dict.fromkeys(record.attack for record in run.records if record.control != "lineup")
    most = {base_of(label): label for label in sorted(labels, key=rung_of, reverse=True)}
    return [most[base] for base in dict.fromkeys(map(base_of, labels))]


def _attack(label: str, choice: Any) -> str:
    """With its steps and restarts, where it has them, and every option that is not its default."""
    parts = [describe_share(label, choice), ", ".join(list_changes(choice))]
    words = "; ".join(part for part in parts if part)
    return f"{base_of(label)} ({words})" if words else label


def list_changes(choice: Any) -> list[str]:
    """Options of an attack that differ from its default, which can make it weaker: "rate 0 instead of 0.1"."""
    given = choice if isinstance(choice, Mapping) else {}
    factory = ATTACKS.get(str(given.get("name", "")))
    defaults = {} if factory is None else {name: p.default for name, p in options_of(factory).items()}
    return [
        f"{name} {_value(given[name])} instead of {_value(default)}"
        for name, default in defaults.items()
        if name in given and default is not inspect.Parameter.empty and not _is_same(given[name], default)
    ]


def _is_same(value: Any, default: Any) -> bool:
    return (tuple(value) if isinstance(value, list) else value) == default


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_value, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value) or "none"
