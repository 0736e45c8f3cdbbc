"""TOML to config, and back."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gradveil import toml
from gradveil.config.check import Where, check, check_fields
from gradveil.config.resolve import is_user_model, resolve
from gradveil.config.schema import AuditConfig, Choice, ScenarioConfig
from gradveil.errors import ConfigError

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
LARGEST = 1_000_000  # bytes of a config file


def read_tables(path: Path, model_given: bool = False) -> dict[str, Any]:
    """The raw tables of a config file. `model_given`: the command line names the model itself, whatever is written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read, {error.strerror or error}") from error
    if len(content) > LARGEST:
        raise ConfigError(f"{path}: {len(content)} bytes, expected a config of at most {LARGEST}")
    try:
        raw = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML, {error}") from error
    if not model_given:
        refuse_code(raw, path)
    return raw


def refuse_code(raw: Mapping[str, Any], path: Path) -> None:
    """A config file must not make us run a Python file: whoever sends a config could then run anything."""
    scenario = raw.get("scenario")
    model = scenario.get("model") if isinstance(scenario, Mapping) else None
    if isinstance(model, str) and is_user_model(model):
        raise ConfigError(
            f"{path}: scenario.model: a model file is never taken from a config, give it as --model {model}"
        )


def load(path: str | Path) -> AuditConfig:
    """The config in a file, checked and complete."""
    path = Path(path)
    return from_tables(read_tables(path), lambda key: f"{path}: {key}")


def from_tables(raw: Mapping[str, Any], where: Where = str) -> AuditConfig:
    """Raw tables to a config: keys, types, ranges and names are right, and the budget is spent."""
    tables = {key: _table(raw[key], where(key)) for key in ("scenario", "defense", "attack") if key in raw}
    plain = check_fields(AuditConfig, {k: v for k, v in raw.items() if k not in tables}, where)
    if "scenario" in tables:
        plain["scenario"] = _scenario(tables["scenario"], where)
    for kind in ("defense", "attack"):
        if kind in tables:
            plain[kind] = _choices(tables[kind], kind, where)
    return resolve(AuditConfig(**plain), where)


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected a table, got {value!r}")
    return value


def _scenario(raw: Mapping[str, Any], where: Where) -> ScenarioConfig:
    options = _table(raw.get("data_options", {}), where("scenario.data_options"))
    plain = {key: value for key, value in raw.items() if key != "data_options"}
    return ScenarioConfig(**check_fields(ScenarioConfig, plain, where, "scenario."), data_options=dict(options))


def _choices(raw: Mapping[str, Any], kind: str, where: Where) -> dict[str, Choice]:
    choices: dict[str, Choice] = {}
    for label, value in raw.items():
        if not LABEL.fullmatch(label):
            raise ConfigError(f"{where(kind)}: label {label!r}: expected letters, digits and . _ + - (at most 64)")
        options = dict(_table(value, where(f"{kind}.{label}")))
        name = check(options.pop("name", label), str, where(f"{kind}.{label}.name"))
        choices[label] = Choice(name=name, options=options)
    return choices


def to_tables(config: AuditConfig) -> dict[str, Any]:
    """The inverse of `from_tables`."""
    tables = {key: value for key, value in asdict(config).items() if key not in ("scenario", "defense", "attack")}
    tables["scenario"] = dict(asdict(config.scenario))
    for kind in ("defense", "attack"):
        chosen: Mapping[str, Choice] = getattr(config, kind)
        tables[kind] = {label: {"name": c.name, **c.options} for label, c in chosen.items()}
    return tables


def dumps(config: AuditConfig) -> str:
    """A config as TOML: `from_tables(tomllib.loads(dumps(c))) == c`."""
    return toml.dump(to_tables(config))
