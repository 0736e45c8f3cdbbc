"""The keys of a scenario that a capture settles: what was sent was sent, and cannot be asked for otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradveil.config.training import tables_of
from gradveil.core.check import Where
from gradveil.core.choice import parse_choices
from gradveil.core.errors import ConfigError
from gradveil.core.own_loss import is_own_loss, is_same_loss

if TYPE_CHECKING:
    from gradveil.capture.read import Outline

LABELS = "labels"  # as captures name them
ATTACKERS = ("eavesdropper", "curious")
PLAYED = {  # keys about clients that are simulated, and their defaults
    "weights": "",
    "rounds": 1,
    "encodings": "hidden",
    "training": "known",
    "model_seed": 0,
    "attack_seed": 0,
    "draw": "seed",
    "canaries": 0,
}


def settle(raw: Mapping[str, Any], where: Where) -> Mapping[str, Any]:
    """The raw tables with what their capture says filled in. Without a capture they are as they were."""
    scenario = raw.get("scenario")
    if not isinstance(scenario, Mapping) or not scenario.get("capture"):
        if isinstance(scenario, Mapping) and scenario.get("pictures"):
            raise ConfigError("is about a captured round, set `capture` too", key=where("scenario.pictures"))
        return raw
    if not isinstance(scenario["capture"], str):
        raise ConfigError(f"{where('scenario.capture')}: expected the path of a capture, correct it")
    outline = _read_outline(scenario["capture"], where("scenario.capture"))
    document = outline.document
    _check_played(raw, scenario, where)
    settings = _settings_of(document, scenario)
    uncounted = 0 in document["examples"].values()
    settings |= _own_loss(settings["loss"], scenario, where)
    for key, value in settings.items():
        if key in scenario and scenario[key] != value and not (key == "batch_size" and uncounted):
            message = f"is {scenario[key]!r:.60}, the capture says {value!r}, leave it out"
            raise ConfigError(f"{where(f'scenario.{key}')}: {message}")
    clients = set(document["examples"])
    labels = "known" if set(outline.places[LABELS]) == clients else "inferred"
    free = {"model": document["model"], "data": "", "attacker": "curious", "labels": labels, "images": len(clients)}
    choices = parse_choices([document["defense"] or "none"], f"{scenario['capture']}: defense", _defenses())
    defenses = {label: {"name": choice.name, **choice.options} for label, choice in choices.items()}
    return {"defense": defenses, **raw, "scenario": {**free, **settings, **scenario}}


def _read_outline(path: str, where: str) -> Outline:
    """A fault of the file is reported of the file and, where a config names it, of the config."""
    from gradveil.capture.read import read_outline  # torch is not needed by configs without one

    try:
        return read_outline(Path(path))
    except ConfigError as error:
        if where.startswith("--"):
            raise
        raise ConfigError(f"{where}: {error}") from error


def _defenses() -> Mapping[str, object]:
    from gradveil.defenses import DEFENSES  # torch is not needed by configs without a capture

    return DEFENSES


def _settings_of(document: Mapping[str, Any], scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a scenario that the capture settles."""
    counts = [count for count in document["examples"].values() if count]
    settings = tables_of(document["training"])
    settings["class_weights"] = list(settings["class_weights"])  # as TOML gives it
    size = min(counts) if counts else scenario.get("batch_size", 0)
    if not size:
        raise ConfigError(f"{scenario['capture']}: examples: no client said how many pictures it has, set `batch_size`")
    return settings | {"batch_size": size, "aggregate": document["aggregate"]}


def _own_loss(stated: str, scenario: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """What the user gave for a loss of the clients' own: no file that a capture names is run."""
    given = scenario.get("loss")
    if not is_own_loss(stated):
        return {}
    if isinstance(given, str) and is_same_loss(given, stated):
        return {"loss": given}
    do = f"give it as `loss = path/to/{stated}`"
    if given is None:
        at = f"{scenario['capture']}: loss"
        raise ConfigError(f"is {stated}, a file that is never taken from a capture, {do}", key=at)
    raise ConfigError(f"is {given!r:.60}, the clients' is {stated!r}, {do}", key=where("scenario.loss"))


def _check_played(raw: Mapping[str, Any], scenario: Mapping[str, Any], where: Where) -> None:
    if raw.get("also"):
        raise ConfigError(f"{where('also')}: what was sent cannot be varied, leave it out")
    for key, default in PLAYED.items():
        if key in scenario and scenario[key] != default:
            raise ConfigError(f"{where(f'scenario.{key}')}: is about simulated clients, leave it out with a capture")
    if scenario.get("attacker", "curious") not in ATTACKERS:
        raise ConfigError(f"{where('scenario.attacker')}: the model of a capture is sent already, use curious")
