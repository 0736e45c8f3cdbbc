"""The keys of a scenario that a capture settles: what was sent was sent, and cannot be asked for otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradveil.core.check import Where
from gradveil.core.choice import parse_choices
from gradveil.core.errors import ConfigError

RENAMED = {"steps": "local_steps", "rate": "local_rate", "batch_size": "local_batch_size"}
PLAYED = ("weights", "rounds", "encodings", "training", "model_seed")  # of clients that are simulated
ATTACKERS = ("eavesdropper", "curious")
KEPT = {"weights": "", "rounds": 1, "encodings": "hidden", "training": "known", "model_seed": 0}


def settled(raw: Mapping[str, Any], where: Where) -> Mapping[str, Any]:
    """The raw tables with what their capture says filled in. Without a capture they are as they were."""
    scenario = raw.get("scenario")
    if not isinstance(scenario, Mapping) or not scenario.get("capture"):
        if isinstance(scenario, Mapping) and scenario.get("pictures"):
            raise ConfigError(f"{where('scenario.pictures')}: is about a captured round, add --capture FILE")
        return raw
    if not isinstance(scenario["capture"], str):
        raise ConfigError(f"{where('scenario.capture')}: expected the path of a capture, correct it")
    capture = _loaded(scenario["capture"], where("scenario.capture"))
    _check_played(raw, scenario, where)
    told = _told(capture, scenario)
    for key, value in told.items():
        if key in scenario and scenario[key] != value and not (key == "batch_size" and 0 in capture.examples.values()):
            said = f"is {scenario[key]!r:.60}, the capture says {value!r}, leave it out"
            raise ConfigError(f"{where(f'scenario.{key}')}: {said}")
    labels = "known" if set(capture.labels) == set(capture.updates) else "inferred"
    free = {"model": capture.model, "data": "", "attacker": "curious", "labels": labels, "images": len(capture.updates)}
    choices = parse_choices([capture.defense or "none"], f"{scenario['capture']}: defense", _defenses())
    said = {label: {"name": choice.name, **choice.options} for label, choice in choices.items()}
    return {"defense": said, **raw, "scenario": {**free, **told, **scenario}}


def _loaded(path: str, where: str) -> Any:
    """What is wrong with the file is said of the file and, where a config names it, of the config."""
    from gradveil.capture import load  # torch is not needed by configs without one

    try:
        return load(Path(path))
    except ConfigError as error:
        if where.startswith("--"):
            raise
        raise ConfigError(f"{where}: {error}") from error


def _defenses() -> Mapping[str, object]:
    from gradveil.defenses import DEFENSES  # torch is not needed by configs without a capture

    return DEFENSES


def _told(capture: Any, scenario: Mapping[str, Any]) -> dict[str, Any]:
    training = {RENAMED.get(key, key): value for key, value in asdict(capture.training).items()}
    known = ("local_steps", "local_rate", "local_batch_size", "momentum", "weight_decay", "batchnorm", "loss")
    counts = [count for count in capture.examples.values() if count]
    told = {key: training[key] or 0 if key == "local_batch_size" else training[key] for key in known}
    size = min(counts) if counts else scenario.get("batch_size", 0)
    if not size:
        raise ConfigError(f"{scenario['capture']}: examples: no client said how many pictures it has, add --batch-size")
    return told | {"batch_size": size, "aggregate": capture.aggregate}


def _check_played(raw: Mapping[str, Any], scenario: Mapping[str, Any], where: Where) -> None:
    if raw.get("also"):
        raise ConfigError(f"{where('also')}: what was sent cannot be varied, leave it out")
    for key in PLAYED:
        if key in scenario and scenario[key] != KEPT[key]:
            raise ConfigError(f"{where(f'scenario.{key}')}: is about simulated clients, leave it out with a capture")
    if scenario.get("attacker", "curious") not in ATTACKERS:
        raise ConfigError(f"{where('scenario.attacker')}: the model of a capture is sent already, use curious")
