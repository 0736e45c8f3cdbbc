"""A defense from what the command line writes: `prune:ratio=0.9`, `ats:policy.json`."""

from __future__ import annotations

from gradveil.core.check import check_options, missing_options
from gradveil.core.choice import parse_choice
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, GradveilError, unknown
from gradveil.defenses import DEFENSES


def defense_from(text: str, where: str = "--defense") -> Defense:
    """Names, options and ranges checked as by an audit.

    >>> defense_from("prune:ratio=0.5")
    Prune(ratio=0.5)
    """
    choice = parse_choice(text, where, DEFENSES)
    if choice.name not in DEFENSES:
        raise unknown("defense", choice.name, DEFENSES, where)
    factory = DEFENSES[choice.name]
    options = check_options(factory, choice.options, lambda key: f"{where}: {key}", f"{choice.name}.")
    if missing := missing_options(factory, options):
        raise ConfigError(f"{where}: {choice.name} needs {', '.join(missing)}")
    try:
        return factory(**options)
    except (GradveilError, ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error
