"""Errors of the library in the words of the command line: a key becomes the option that sets it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from typer.core import TyperGroup
from typer.main import get_command

from gradveil.core.errors import GradveilError, Interrupted

MENTION = re.compile(r"`([a-z_]+)(?: = ([^`]+))?`")
OTHER_NAMES = {  # of keys that no option is named after
    "batchnorm": "--bn",
    "data_options": "--data-option",
    "defenses": "--defense",
    "attacks": "--attack",
    "metrics": "--metric",
    "stages": "--stage",
    "folder": "--out",
}


def in_options(error: GradveilError | Interrupted, options: Mapping[str, str]) -> str:
    """The message, with every key that is an option of the command written as one.

    >>> from gradveil.core.errors import ConfigError
    >>> error = ConfigError("one GPU cannot be shared, use `device = cpu`", key="workers")
    >>> in_options(error, {"workers": "--workers", "device": "--device"})
    '--workers: one GPU cannot be shared, use --device cpu'
    """
    message = in_words(error.message, options)
    key, rest = error.key, message
    if not key:
        key, colon, rest = message.partition(": ")
        if not colon or key not in options:  # `model.pt` is a file, and not what --model sets
            return message
    head, _, inner = key.partition(".")
    place = f"{options[head]}: {inner}" if inner and head in options else options.get(key, key)
    return f"{place}: {rest}"


def in_words(text: str, options: Mapping[str, str]) -> str:
    """The text with every setting in backticks that is an option written as one.

    >>> in_words("set `device = cpu`", {"device": "--device"})
    'set --device cpu'
    """

    def option(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        if name not in options:
            return found[0]
        return f"{options[name]} {value}" if value else options[name]

    return MENTION.sub(option, text)


def options_of(app: object, arguments: list[str]) -> dict[str, str]:
    """By key, the options of the command that was given."""
    command = get_command(app)  # type: ignore[arg-type]
    for word in arguments:
        if isinstance(command, TyperGroup) and word in command.commands:
            command = command.commands[word]
    own = {str(p.name): p.opts[0] for p in command.params if p.opts and p.opts[0].startswith("--")}
    return {key: option for key, option in OTHER_NAMES.items() if option in own.values()} | own
