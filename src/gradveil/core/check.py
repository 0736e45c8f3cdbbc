"""Values against annotations: one line for every way in which a value can be wrong."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gradveil.core.errors import ConfigError, unknown

Where = Callable[[str], str]  # the key of a value -> how its giver knows it, such as "audit.toml: seed"
LONGEST_TEXT, LONGEST_PART = 4096, 255  # of a path, and of a name between two slashes
LONGEST_LIST = 1000
LARGEST_COUNT = 10_000_000
RANGES = {  # of a method's whole numbers; more steps would take months
    "steps": {"low": 1, "high": 10_000_000},
    "restarts": {"low": 1, "high": 10_000},
    "seed": {},
}
_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def unknown_key(given: str, known: Iterable[str], where: str) -> ConfigError:
    near = get_close_matches(given, list(known), n=1)
    hint = f"did you mean {near[0]!r}? Known" if near else "known"
    where = where if len(where) <= LONGEST_TEXT else f"{where[:LONGEST_PART]}..."
    return ConfigError(f"unknown key, {hint}: {', '.join(sorted(known)) or 'none'}", key=where)


def check(value: Any, kind: Any, where: str) -> Any:
    """The value as its annotation wants it (lists become tuples, whole numbers floats), or ConfigError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value not in arguments:
            raise unknown("value", value[:LONGEST_PART] if isinstance(value, str) else show(value), arguments, where)
        return value
    if origin in (Union, UnionType):
        return _one_of(value, arguments, where)
    if origin is tuple:
        return _tuple(value, arguments, where)
    kind = str if kind is Path else kind
    if kind in _KINDS:
        return _scalar(value, kind, where)
    _check_inside(value, where)
    return tuple(value) if isinstance(value, list) else value


def show(value: Any) -> str:
    """A value as an error shows it: on one line and short, whatever it is."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return f"a {type(value).__name__} too long to show"


def _scalar(value: Any, kind: type, where: str) -> Any:
    _check_one(value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"expected {_KINDS[kind]}, got {show(value)}", key=where)
    return value


def _check_one(value: Any, where: str) -> None:
    """What no number and no text may be, wherever it stands."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"expected a whole number within 64 bits, got one of {value.bit_length()} bits", key=where)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"expected a finite number, got {value!r}", key=where)
    if isinstance(value, str) and not value.isprintable():
        raise ConfigError(f"expected text on one line, got {show(value)}", key=where)
    if isinstance(value, str) and (len(value) > LONGEST_TEXT or _longest_part(value) > LONGEST_PART):
        raise ConfigError(f"expected text of at most {LONGEST_PART} letters, got {len(value)}", key=where)


def _longest_part(text: str) -> int:
    return max(len(part.encode()) for part in text.split("/"))


def _check_inside(value: Any, where: str) -> None:
    """The same for everything inside tables and lists, of which TOML's dates and times are no part."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_one(key, where)
            _check_inside(inner, where)
    elif isinstance(value, list | tuple):
        _check_length(value, where)
        for inner in value:
            _check_inside(inner, where)
    elif isinstance(value, date | time):
        raise ConfigError(f"expected no date or time, got {value}", key=where)
    else:
        _check_one(value, where)


def _check_length(value: Sequence[Any], where: str) -> None:
    if len(value) > LONGEST_LIST:
        raise ConfigError(f"expected a list of at most {LONGEST_LIST}, got {len(value)}", key=where)


def _one_of(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    errors = []
    for kind in kinds:
        if kind is NoneType:
            continue
        try:
            return check(value, kind, where)
        except ConfigError as error:
            errors.append(error)
    raise errors[0]


def _tuple(value: Any, kinds: tuple[Any, ...], where: str) -> tuple:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"expected a list, got {show(value)}", key=where)
    _check_length(value, where)
    return tuple(check(item, kinds[0], where) for item in value)


def within(value: float, limits: Mapping[str, Any], where: str) -> None:
    """The range of a field's metadata."""
    low, high = limits.get("low"), limits.get("high")
    if low is not None and value < low:
        raise ConfigError(f"must be at least {low}, got {value}", key=where)
    if high is not None and value > high:
        raise ConfigError(f"must be at most {high}, got {value}", key=where)


def check_fields(
    kind: type, raw: Mapping[str, Any], where: Where, prefix: str = "", hidden: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Keys, types and ranges of the plain fields of a config dataclass; tables are the caller's."""
    hints, known = get_type_hints(kind), {f.name: f for f in fields(kind) if f.name not in hidden}
    for key in raw:
        if key not in known:
            raise unknown_key(key, known, where(prefix + key))
    checked = {key: check(value, hints[key], where(prefix + key)) for key, value in raw.items()}
    for key, value in checked.items():
        within(value, known[key].metadata, where(prefix + key))
    return checked


def options_of(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What a factory can be given by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: p for name, p in inspect.signature(factory).parameters.items() if p.kind in named}


def hints_of(factory: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of its parameters; a preset has those of its factory."""
    built_by = inspect.unwrap(factory)
    return get_type_hints(built_by.__init__ if inspect.isclass(built_by) else built_by)


def check_options(
    factory: Callable[..., Any], options: Mapping[str, Any], where: Where, prefix: str, given: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Options against the factory's signature. `given` are parameters that the tool itself fills in."""
    known = [name for name in options_of(factory) if name not in given]
    for key in options:
        if key not in known:
            raise unknown_key(key, known, where(prefix + key))
    hints = hints_of(factory)
    checked = {key: check(value, hints.get(key, Any), where(prefix + key)) for key, value in options.items()}
    for key, value in checked.items():
        if value == () and options_of(factory)[key].default != ():
            raise ConfigError(f"{where(prefix + key)}: none is given, give at least one")
        if isinstance(value, int):
            within(value, RANGES.get(key, {"high": LARGEST_COUNT}), where(prefix + key))
    return checked


def missing_options(factory: Callable[..., Any], options: Mapping[str, Any], given: tuple[str, ...] = ()) -> list[str]:
    """Parameters without a default that nobody gave."""
    parameters = options_of(factory)
    return [n for n, p in parameters.items() if p.default is p.empty and n not in options and n not in given]


def complete(factory: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options and every default that TOML can hold, so that a config says it all."""
    defaults = {name: p.default for name, p in options_of(factory).items() if _plain(p.default)}
    return {**defaults, **options}


def _plain(value: Any) -> bool:
    return all(map(_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str)
