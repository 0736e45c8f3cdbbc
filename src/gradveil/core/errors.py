"""Errors that a user can mend. Each says what was expected, what came, and what to do.

The library speaks of its own names: `key` is the parameter or setting at fault, `` `name` `` or
`` `name = value` `` in a message is another one. The command line writes both as options: `gradveil.cli._errors`.

>>> str(ConfigError("a Ray cluster has workers of its own, leave out `workers` or `ray`", key="workers"))
'workers: a Ray cluster has workers of its own, leave out `workers` or `ray`'
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class GradveilError(Exception):
    """Bad input: the command line prints it as one line and exits with `exit_code`."""

    exit_code = 2

    def __init__(self, message: str = "", *, key: str = "") -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.message, self.key = message, key


class ConfigError(GradveilError):
    """A file, option or name that cannot be used."""


class LockedError(GradveilError):
    """Another run is writing to the same folder."""

    exit_code = 4


class DiskError(GradveilError):
    """The disk is full, or a limit on the size of files was reached; what was finished is kept."""

    exit_code = 74


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during an experiment: the message says what is kept and how to go on."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message, self.key = message, ""


class ThreatModelError(GradveilError):
    """An attack that needs more than the scenario grants."""


class NotApplicableError(GradveilError):
    """An attack that has nothing to work on in this model."""


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> ConfigError:
    """The error for a name that is not in a table, with the nearest one suggested.

    >>> str(unknown("attack", "invertgrat", ["dlg", "invertgrad"]))
    "attack: unknown name 'invertgrat', did you mean 'invertgrad'? Known: dlg, invertgrad"
    """
    known = sorted(known)
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? Known" if near else "known"
    return ConfigError(f"unknown name {name!r}, {hint}: {', '.join(known)}", key=where or kind)
