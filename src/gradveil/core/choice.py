"""`NAME[:k=v,...]`, as methods are named on the command line."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gradveil.core.check import show
from gradveil.core.errors import ConfigError
from gradveil.core.preset import fact_of

NO_ROWS: Mapping[str, object] = MappingProxyType({})
LONGEST_LABEL = 64
LONGEST = 1000  # letters of a value: TOML's reader takes its time with long ones


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One row of a catalogue and the options it is built with."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def parse_value(text: str) -> Any:
    """A TOML value where the text is one, the text itself otherwise.

    >>> parse_value("1e-3"), parse_value("true"), parse_value("cosine"), parse_value("[1, 2]")
    (0.001, True, 'cosine', [1, 2])
    """
    if "\n" in text or "\r" in text or len(text) > LONGEST:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # a number of thousands of digits is a plain ValueError
        return text
    return value if isinstance(value, bool | int | float | str | list) else text


def parse_pairs(pairs: Sequence[str], where: str, texts: bool = False) -> dict[str, Any]:
    """`k=v` texts to a dict; a key may be given once. `texts` leaves the values as they are written."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"{where}: expected KEY=VALUE, got {show(pair)}")
        if key in options:
            raise ConfigError(f"{where}: {key}: given twice")
        options[key] = value.strip() if texts else parse_value(value.strip())
    return options


def split_outside(text: str, mark: str) -> list[str]:
    """Split at `mark` where it stands outside brackets and quotes.

    >>> split_outside("a=[1,2],b='x,y'", ",")
    ['a=[1,2]', "b='x,y'"]
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        if letter == mark and not quote and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def parse_choice(text: str, where: str, catalogue: Mapping[str, object] = NO_ROWS) -> Choice:
    """One method with its options. A row of the `catalogue` may say of which option the key may be left out.

    >>> parse_choice("prune:ratio=0.9", "defense")
    Choice(name='prune', options={'ratio': 0.9})
    >>> class Ats:
    ...     first_option = "policy"
    >>> parse_choice("ats:3", "defense", {"ats": Ats})
    Choice(name='ats', options={'policy': '3'})
    """
    name, colon, options = text.partition(":")
    if not name.strip() or (colon and not options.strip()):
        raise ConfigError(f"{where}: expected NAME or NAME:KEY=VALUE,..., got {show(text)}")
    name, pairs = name.strip(), split_outside(options, ",") if colon else []
    first = fact_of(catalogue.get(name), "first_option", "")
    if first and pairs and "=" not in pairs[0]:
        pairs[0] = f"{first}={pairs[0]}"
    parsed = parse_pairs(pairs, where)
    if first in parsed and not isinstance(parsed[first], str):  # 3 is a number of TOML's and a policy of ours
        parsed[first] = parse_pairs(pairs, where, texts=True)[first]
    return Choice(name=name, options=parsed)


def parse_choices(texts: Sequence[str], where: str, catalogue: Mapping[str, object] = NO_ROWS) -> dict[str, Choice]:
    """Methods by label: the name, and the option values too where a name is there more than once."""
    choices = [parse_choice(text, where, catalogue) for text in texts]
    often = Counter(choice.name for choice in choices)
    labelled: dict[str, Choice] = {}
    for text, choice in zip(texts, choices, strict=True):
        label = choice.name if often[choice.name] == 1 else label_of(choice)
        if label in labelled:
            raise ConfigError(f"{where}: {show(text)} is given twice")
        labelled[label] = choice
    return labelled


def label_of(choice: Choice) -> str:
    """Name and option values, fit for a file name.

    >>> label_of(Choice(name="gaussian", options={"scale": 0.01}))
    'gaussian-0.01'
    """
    text = "-".join(map(str, choice.options.values()))
    fit = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._+-") else "-" for letter in text)
    room = LONGEST_LABEL - len(choice.name) - 1
    return f"{choice.name}-{fit[-room:]}" if fit and room > 0 else choice.name  # of a path, its end
