"""What every number rests on: fifteen things an attacker knows or does not, and how we know that.

A value is *declared* (somebody stated it), *assumed* (a default, or all that this version can simulate) or *from
capture* (read off what a real client sent).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.verdict import Verdict
from gradveil.audit.verdict.conditions import describe_effort, describe_prior
from gradveil.core.own_loss import is_own_loss
from gradveil.experiment.record import Record

NOT_STATED = "not stated: treated as known to the attacker"
ATTACKERS = {
    "eavesdropper": "An eavesdropper: it reads every update on its way and changes nothing.",
    "curious": "An honest-but-curious server: it reads every update and changes nothing.",
    "malicious": "A malicious server: it may change the model before it sends it.",
}
LABELS = {"known": "known to the attacker", "inferred": "not given; the attacker infers them from the update"}
STATISTICS = {
    "eval": "running statistics of the model, known to the attacker",
    "batch": "the client's own batch, kept to itself",
    "batch-shared": "the client's own batch; the updated running ones are sent along",
}
MODES = {
    "eval": "evaluation mode, which makes inversion easier",
    "batch": "training mode",
    "batch-shared": "training mode",
}
NAMES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "adagrad": "Adagrad"}
OPTIMIZER = ("local_rate", "momentum", "weight_decay", "optimizer", "schedule", "dropout")
NUMBERS = ("momentum", "weight_decay", "warmup", "clip_gradients", "label_smoothing")
WORDS = {  # by key and value of a scenario
    ("nesterov", True): "Nesterov",
    ("schedule", "step"): "rate falling in steps",
    ("schedule", "cosine"): "rate falling as a cosine",
    ("dropout", "on"): "dropout by masks that the attacker does not know",
    ("augment", "crop-flip"): "crops and flips that the attacker does not know",
    ("update_precision", "bf16"): "update rounded to bf16",
    ("update_precision", "fp16"): "update rounded to fp16",
}
KNOWS = {
    frozenset({"unaware"}): "not known",
    frozenset({"adaptive"}): "known",
    frozenset({"unaware", "adaptive"}): "two attackers, one who knows it and one who does not",
}


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One line of the ledger. No `tag`: nobody said anything."""

    name: str
    value: str
    tag: str


def describe_attacker(run: Run) -> str:
    """Who attacks, in a sentence."""
    kind = str(run.scenario.get("attacker", ""))
    return ATTACKERS.get(kind, kind or "Who attacks is not stated.")


def list_assumptions(run: Run, verdict: Verdict) -> list[Assumption]:
    """All fifteen, whatever the run says of them."""
    scenario, records = run.scenario, [r for finding in verdict.findings for r in finding.tally.records]
    fields: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "Model weights": (_weights(scenario), ("scenario.weights", "scenario.model_seed")),
        "Architecture": (_state(scenario, "model", "{}, known to the attacker"), ("scenario.model",)),
        "Labels": (_word(scenario, "labels", LABELS), ("scenario.labels",)),
        "Normalization statistics": (_word(scenario, "batchnorm", STATISTICS), ("scenario.batchnorm",)),
        "Client mode": (_word(scenario, "batchnorm", MODES), ("scenario.batchnorm",)),
        "Batch size": (_state(scenario, "batch_size", "{}"), ("scenario.batch_size",)),
        "Local steps": (_local_steps(scenario), _in_scenario("local_steps", "epochs", "order")),
        "Local optimizer and rate": (
            _optimizer(scenario),
            _in_scenario(*OPTIMIZER),
        ),
        "Sample count": (_samples(scenario), _in_scenario("images", "batch_size")),
        "Data prior": (_each_attack(records, run, describe_prior), ("attack",)),
        "Defense algorithm": (_defenses(run, records), ("defense",)),
        "Defense randomness": (_randomness(run, records), ()),
        "Aggregation": (_state_simulated(run, _aggregation(scenario)), ("scenario.aggregate",)),
        "Rounds observed": (_state_simulated(run, str(scenario.get("rounds", 1))), ("scenario.rounds",)),
        "Compute budget": (_effort(records, run), ("attack", "budget")),
    }
    return [_assumption(run, name, value, keys) for name, (value, keys) in fields.items()]


def _effort(records: list[Record], run: Run) -> str | None:
    """Steps and restarts of the attacks, and where their settings were chosen."""
    effort, tuning = _each_attack(records, run, describe_effort), run.provenance.get("tuning")
    if effort is None or not isinstance(tuning, Mapping):
        return effort
    tried = ", ".join(f"{label} {count}" for label, count in tuning.get("settings", {}).items())
    return f"{effort}; settings tried on {tuning.get('pictures')} other pictures: {tried}"


def _assumption(run: Run, name: str, value: str | None, keys: tuple[str, ...]) -> Assumption:
    if value is None:
        return Assumption(name=name, value=NOT_STATED, tag="")
    also = [str(other) for key in keys for other in _others(run, key)]
    varied = f"; also tried: {', '.join(also)}" if also else ""
    return Assumption(name=name, value=value + varied, tag=_tag(run, keys))


def _tag(run: Run, keys: tuple[str, ...]) -> str:
    for tag, listed in (("from capture", "captured"), ("declared", "declared")):
        if set(keys) & set(map(str, run.provenance.get(listed, ()))):
            return tag
    return "assumed"


def _others(run: Run, key: str) -> Iterable[Any]:
    """Other values that the audit varied this key to."""
    values = run.choices("also").get(key.removeprefix("scenario."), ())
    return values if isinstance(values, list | tuple) else (values,)


def _in_scenario(*keys: str) -> tuple[str, ...]:
    return tuple(f"scenario.{key}" for key in keys)


def _state(scenario: Mapping[str, Any], key: str, template: str) -> str | None:
    return template.format(scenario[key]) if key in scenario else None


def _word(scenario: Mapping[str, Any], key: str, words: Mapping[str, str]) -> str | None:
    value = scenario.get(key)
    return None if value is None else words.get(str(value), str(value))


def _weights(scenario: Mapping[str, Any]) -> str | None:
    if "weights" not in scenario:
        return None
    if scenario.get("capture"):
        return "as they were sent, known to the attacker"
    where = f"trained: {scenario['weights']}" if scenario["weights"] else "untrained: random initial weights"
    return f"{where}, known to the attacker"


def _local_steps(scenario: Mapping[str, Any]) -> str | None:
    steps, epochs = scenario.get("local_steps"), scenario.get("epochs", 0)
    if steps is None:
        return None
    shuffled = "; every client shuffles its pictures, not known to the attacker"
    if epochs or scenario.get("order") == "unknown":
        found = f"{epochs} epochs over a client's pictures" if epochs else f"{steps} (FedAvg)"
        return found + (shuffled if scenario.get("order") == "unknown" else "")
    return "1 (FedSGD: the update is one gradient)" if steps == 1 else f"{steps} (FedAvg)"


def _optimizer(scenario: Mapping[str, Any]) -> str | None:
    if "local_rate" not in scenario:
        return None
    parts = [f"{NAMES.get(scenario.get('optimizer', 'sgd'), 'SGD')} at rate {scenario['local_rate']:g}"]
    parts += [f"{name.replace('_', ' ')} {scenario[name]:g}" for name in NUMBERS if scenario.get(name)]
    parts += [word for key, word in WORDS.items() if scenario.get(key[0]) == key[1]]
    if is_own_loss(loss := str(scenario.get("loss", ""))):
        parts.append(f"a loss of the clients' own, {Path(loss).name}")
    if scenario.get("local_batch_size"):
        parts.append(f"{scenario['local_batch_size']} pictures a step")
    return ", ".join(parts) + "; known to the attacker"


def _samples(scenario: Mapping[str, Any]) -> str | None:
    if "images" not in scenario or "batch_size" not in scenario:
        return None
    summed = scenario.get("aggregate", 1)
    who = "clients" if summed == 1 else f"sums over {summed} clients"
    return f"{scenario['images']} {who} with {scenario['batch_size']} each; the attacker knows how many"


def _aggregation(scenario: Mapping[str, Any]) -> str:
    summed = scenario.get("aggregate", 1)
    if summed == 1:
        return "none: the attacker sees each client's own update"
    return f"the attacker sees sums over {summed} clients alone"


def _each_attack(records: Iterable[Record], run: Run, describe: Callable[[Any], str | None]) -> str | None:
    """Attack by attack; not stated if one of them is not."""
    labels = dict.fromkeys(record.attack for record in records)
    found = {label: describe(run.choices("attack").get(label)) for label in labels}
    if not found or None in found.values():
        return None
    return "; ".join(f"{label}: {text}" for label, text in found.items())


def _defenses(run: Run, records: Iterable[Record]) -> str:
    tried: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if not run.undefended(record.defense):
            tried[record.defense].add(record.attacker)
    alike: dict[str, list[str]] = defaultdict(list)
    for name, kinds in tried.items():
        alike[KNOWS[frozenset(kinds)]].append(name)
    return "; ".join(f"{', '.join(names)}: {word}" for word, names in alike.items()) or "no defense was audited"


def _randomness(run: Run, records: Iterable[Record]) -> str:
    if all(run.undefended(record.defense) for record in records):
        return "no defense was audited"
    return "not known to the attacker: every client draws its own numbers"


def _state_simulated(run: Run, value: str) -> str | None:
    """What this version can only do one way; without settings nobody knows which version it was."""
    return value if run.config else None
