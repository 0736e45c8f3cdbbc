"""TOML to config, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args, get_type_hints

from gradveil.config.captured import settle
from gradveil.config.resolve import resolve
from gradveil.config.schema import VARIED, AuditConfig, ScenarioConfig
from gradveil.core import toml
from gradveil.core.check import Where, check, check_fields, show, unknown_key
from gradveil.core.choice import Choice
from gradveil.core.errors import ConfigError
from gradveil.core.own_loss import is_own_loss
from gradveil.core.toml import DEEPEST, read_toml
from gradveil.models.library import is_library_model
from gradveil.models.user import is_user_model

UNWRITTEN = ("declared", "seconds")  # no part of what is audited
CODE = re.compile(r"\.py(:|$)")  # `file.py:factory`
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
TABLES = ("scenario", "also", "defense", "attack")
MOST = 1000  # defenses or attacks
CANARIES = 16  # unusual pictures with a thorough budget, where nobody says how many


def read_tables(
    path: Path, model_given: bool = False, tagger_given: bool = False, loss_given: bool = False
) -> dict[str, Any]:
    """The raw tables of a config file. `..._given`: the command line names it itself, whatever is written."""
    raw = read_toml(path)
    if not model_given:
        refuse_code(raw, path)
    if not loss_given:
        refuse_loss(raw, path)
    if not tagger_given:
        refuse_tagger(raw, path)
    refuse_generators(raw, path)
    return raw


def refuse_code(raw: Mapping[str, Any], path: Path) -> None:
    """A config file must not make us run a Python file: whoever sends a config could then run anything."""
    scenario = raw.get("scenario")
    model = scenario.get("model") if isinstance(scenario, Mapping) else None
    if isinstance(model, str) and is_user_model(model) and not is_library_model(model):
        raise ConfigError(
            f"{path}: scenario.model: a model file is never taken from a config, give it as `model = {model}`"
        )


def refuse_loss(raw: Mapping[str, Any], path: Path) -> None:
    scenario = raw.get("scenario")
    loss = scenario.get("loss") if isinstance(scenario, Mapping) else None
    if isinstance(loss, str) and is_own_loss(loss):
        raise ConfigError(
            f"{path}: scenario.loss: a loss's file is never taken from a config, give it as `loss = {loss}`"
        )


def refuse_tagger(raw: Mapping[str, Any], path: Path) -> None:
    tagger = raw.get("tagger")
    if isinstance(tagger, str) and is_user_model(tagger):
        raise ConfigError(
            f"{path}: tagger: a classifier's file is never taken from a config, give it as `tagger = {tagger}`"
        )


def refuse_generators(raw: Mapping[str, Any], path: Path) -> None:
    """Options of attacks may name weights, but no code; on the command line they may."""
    named = raw.get("attack")
    for label, options in named.items() if isinstance(named, Mapping) else ():
        for key, value in options.items() if isinstance(options, Mapping) else ():
            if isinstance(value, str) and CODE.search(value):
                raise ConfigError(
                    f"{path}: attack.{label}.{key}: a Python file is never taken from a config, "
                    f"give it as `attack = {label}:{key}={value}`"
                )


def load(path: str | Path) -> AuditConfig:
    """The config in a file, checked and complete."""
    path = Path(path)
    raw = read_tables(path)
    config = from_tables(raw, lambda key: f"{path}: {key}")
    require_attacker(raw, path)
    return config


def require_attacker(raw: Mapping[str, Any], path: Path) -> None:
    """Who attacks is the first thing to say in a file that somebody signs."""
    scenario = raw.get("scenario", {})
    if isinstance(scenario, Mapping) and "attacker" not in scenario:
        known = " or ".join(repr(name) for name in get_args(get_type_hints(ScenarioConfig)["attacker"]))
        raise ConfigError(f"{path}: scenario.attacker: is not stated, write attacker = {known}")


def from_tables(raw: Mapping[str, Any], where: Where = str) -> AuditConfig:
    """Raw tables to a config: keys, types, ranges and names are right, and the budget is spent."""
    for key, value in raw.items():
        _check_depth(value, where(key))
    raw = settle(raw, where)
    tables = {key: _table(raw[key], where(key)) for key in TABLES if key in raw}
    plain = check_fields(AuditConfig, {k: v for k, v in raw.items() if k not in tables}, where, hidden=("declared",))
    plain["declared"] = tuple(_list_declared(raw))
    if plain.get("budget") == "quick":
        plain.setdefault("convergence", False)
    if "also" in tables:
        plain["also"] = _also(tables["also"], where)
    scenario = tables.get("scenario", {})
    if plain.get("budget") == "thorough" and not scenario.get("capture"):
        scenario = {"canaries": CANARIES, **scenario}
    if scenario:
        plain["scenario"] = _scenario(scenario, where)
    for kind in ("defense", "attack"):
        if kind in tables:
            plain[kind] = _choices(tables[kind], kind, where)
    return resolve(AuditConfig(**plain), where)


def _check_depth(value: Any, where: str) -> None:
    level = [value]
    for _ in range(DEEPEST):
        tables = [one.values() if isinstance(one, Mapping) else one for one in level]
        level = [inner for one in tables if isinstance(one, Iterable) and not isinstance(one, str) for inner in one]
    if level:
        raise ConfigError(f"{where}: nested more than {DEEPEST} deep")


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a table, got {show(value)}")
    return value


def _scenario(raw: Mapping[str, Any], where: Where) -> ScenarioConfig:
    options = _table(raw.get("data_options", {}), where("scenario.data_options"))
    plain = {key: value for key, value in raw.items() if key != "data_options"}
    if plain.get("data") == "" and not plain.get("capture"):  # as a path it would be the current folder
        raise ConfigError(f"{where('scenario.data')}: expected a name or a path, got nothing")
    return ScenarioConfig(**check_fields(ScenarioConfig, plain, where, "scenario."), data_options=dict(options))


def _also(raw: Mapping[str, Any], where: Where) -> dict[str, tuple[Any, ...]]:
    """Lists of other values, each checked as the scenario's own would be."""
    found: dict[str, tuple[Any, ...]] = {}
    for key, values in raw.items():
        if key not in VARIED:
            raise unknown_key(key, VARIED, where(f"also.{key}"))
        listed = values if isinstance(values, list | tuple) else [values]
        each = [check_fields(ScenarioConfig, {key: value}, lambda k: where(f"also.{k}"))[key] for value in listed]
        found[key] = tuple(dict.fromkeys(each))
    return found


def _list_declared(raw: Mapping[str, Any]) -> Iterator[str]:
    """What was said and not only assumed."""
    for key, value in raw.items():
        if key not in UNWRITTEN:
            yield from (f"scenario.{inner}" for inner in value) if key == "scenario" else (key,)


def _choices(raw: Mapping[str, Any], kind: str, where: Where) -> dict[str, Choice]:
    choices: dict[str, Choice] = {}
    if len(raw) > MOST:
        raise ConfigError(f"{where(kind)}: {len(raw)} of them, the limit is {MOST}")
    for label, value in raw.items():
        if not LABEL.fullmatch(label):
            raise ConfigError(f"{where(kind)}: label {show(label)}: expected letters, digits and . _ + - (at most 64)")
        options = dict(_table(value, where(f"{kind}.{label}")))
        name = check(options.pop("name", label), str, where(f"{kind}.{label}.name"))
        choices[label] = Choice(name=name, options=options)
    return choices


def to_tables(config: AuditConfig) -> dict[str, Any]:
    """The inverse of `from_tables`."""
    own = {key: value for key, value in asdict(config).items() if key not in (*TABLES, *UNWRITTEN)}
    tables = own | {"scenario": asdict(config.scenario), "also": {k: list(v) for k, v in config.also.items()}}
    for kind in ("defense", "attack"):
        chosen: Mapping[str, Choice] = getattr(config, kind)
        tables[kind] = {label: {"name": c.name, **c.options} for label, c in chosen.items()}
    return tables


def dumps(config: AuditConfig) -> str:
    """A config as TOML: `from_tables(tomllib.loads(dumps(c))) == c`."""
    return toml.dump(to_tables(config))
