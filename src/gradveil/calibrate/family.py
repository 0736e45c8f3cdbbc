"""A defense whose strength is open: `dpsgd:clip=0.5`, or a stack of which one part has its strength left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradveil.core import toml
from gradveil.core.check import check_options, missing_options, options_of
from gradveil.core.choice import Choice, parse_choice
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, GradveilError, unknown
from gradveil.core.strength import Strength
from gradveil.defenses import DEFENSES

KEY = "defense"


@dataclass(frozen=True, kw_only=True)
class Family:
    """One defense at every strength. `part`: the row of a stack that has the open option; None: it is no stack.

    strength: the open option; without one there is a single strength, which is measured.
    """

    choice: Choice
    strength: Strength | None
    part: int | None = None

    @property
    def option(self) -> str:
        """What is calibrated, for readers."""
        if self.strength is None:
            return ""
        inside = "" if self.part is None else f"{self.choice.options['of'][self.part]['name']}."
        return f"{inside}{self.strength.option}"

    @property
    def ladder(self) -> tuple[Any, ...]:
        """Values to try, the weakest first; one that stands for none where nothing is open."""
        return (None,) if self.strength is None else self.strength.ladder

    def at(self, value: Any) -> Choice:
        """The defense at one strength."""
        if self.strength is None:
            return self.choice
        own = {self.strength.option: value}
        if self.part is None:
            return Choice(name=self.choice.name, options={**self.choice.options, **own})
        rows = [{**row, **own} if n == self.part else dict(row) for n, row in enumerate(self.choice.options["of"])]
        return Choice(name=self.choice.name, options={**self.choice.options, "of": rows})

    def build(self, value: Any) -> Defense:
        return build(self.at(value))


def parse_family(text: str) -> Family:
    """The family that a text names; ConfigError if there is none, or if its strength is given already.

    >>> parse_family("dpsgd:clip=0.5").option
    'noise'
    >>> parse_family('stack:of=[{name="gaussian"},{name="topk",sparsity=0.9}]').option
    'gaussian.scale'
    """
    choice = parse_choice(text, KEY, DEFENSES)
    if choice.name not in DEFENSES:
        raise unknown("defense", choice.name, DEFENSES, KEY)
    if build(choice).is_none:
        raise ConfigError("the undefended model has no strength, name a defense", key=KEY)
    rows = choice.options.get("of")
    return _of_stack(choice, rows) if isinstance(rows, Sequence) else _of_one(choice)


def _of_one(choice: Choice) -> Family:
    strength = strength_of(choice)
    if strength is not None and strength.option in choice.options:
        raise ConfigError(f"{choice.name}: {strength.option} is what is calibrated, leave it out", key=KEY)
    return Family(choice=choice, strength=strength)


def _of_stack(choice: Choice, rows: Sequence[Mapping[str, Any]]) -> Family:
    """The first row whose strength is not given."""
    for number, row in enumerate(rows):
        own = Choice(name=row["name"], options={key: value for key, value in row.items() if key != "name"})
        strength = strength_of(own)
        if strength is not None and strength.option not in row:
            return Family(choice=choice, strength=strength, part=number)
    raise ConfigError("stack: every part has its strength, leave one out to calibrate it", key=KEY)


def strength_of(choice: Choice) -> Strength | None:
    """What its class states; a preset may have fixed the option."""
    strength = type(build(choice)).strength
    return strength if strength is not None and strength.option in options_of(DEFENSES[choice.name]) else None


def build(choice: Choice) -> Defense:
    """A defense with its options checked; every error is about the key `defense`."""
    factory = DEFENSES[choice.name]
    options = check_options(factory, choice.options, lambda key: f"{KEY}: {key}", f"{choice.name}.")
    if missing := missing_options(factory, options):
        raise ConfigError(f"{choice.name} needs {', '.join(missing)}", key=KEY)
    try:
        return factory(**options)
    except (GradveilError, ValueError, TypeError) as error:
        raise ConfigError(str(error), key=KEY) from error


def write_choice(choice: Choice) -> str:
    """As the command line and `veil` read it.

    >>> write_choice(Choice(name="prune", options={"ratio": 0.9}))
    'prune:ratio=0.9'
    """
    pairs = [f"{key}={_write(value)}" for key, value in choice.options.items()]
    return f"{choice.name}:{','.join(pairs)}" if pairs else choice.name


def _write(value: Any) -> str:
    return value if isinstance(value, str) and value.isidentifier() else toml.value(value)


def write_table(choice: Choice) -> str:
    """As a settings file has it."""
    rows = {key: list(value) if isinstance(value, tuple) else value for key, value in choice.options.items()}
    return toml.dump({"defense": {choice.name: {"name": choice.name, **rows}}}).strip()
