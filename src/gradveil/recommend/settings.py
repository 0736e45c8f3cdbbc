"""The settings of a recommendation, and their checks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from gradveil.calibrate.family import Family, parse_family
from gradveil.calibrate.settings import check_limit
from gradveil.core.check import check
from gradveil.core.errors import ConfigError
from gradveil.core.files import slug
from gradveil.core.preset import Preset
from gradveil.defenses import DEFENSES
from gradveil.tradeoff.settings import StudySettings
from gradveil.tradeoff.settings import check_settings as check_study

STACKS = (
    'stack:of=[{name="dpsgd"},{name="prune",ratio=0.9}]',
    'stack:of=[{name="prune",ratio=0.9},{name="gaussian"}]',
    'stack:of=[{name="gaussian"},{name="topk",sparsity=0.9}]',
    'stack:of=[{name="clip"},{name="gaussian"}]',
)
OWN = ("named_at_most", "spare", "winners", "lineup", "standins")
RANGES = {"winners": (1, 100), "standins": (0, 10_000), "lineup": (2, 1_000_000)}


@dataclass(frozen=True, kw_only=True)
class RecommendSettings(StudySettings):
    """A study of defenses at the strength that is enough: how few pictures may be named, how much accuracy be lost.

    defenses: NAME[:k=v,...], the strength left out; none given: all of the catalogue, and some stacks
    """

    defenses: tuple[str, ...] = ()
    seeds: int = 5
    match: int = 0
    random_policies: int = 0
    named_at_most: float = 0.05
    spare: float = 5.0  # points of accuracy that may be lost
    winners: int = 1  # defenses that are attacked, the most accurate first
    lineup: int = 501  # candidates, the true one included
    standins: int = 32  # training pictures in a victim's place, for each class among the victims

    def to_tables(self) -> dict[str, Any]:
        """What config.toml says of it."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"recommend": {**plain, "defenses": self.texts, "data_options": self.options()}}

    @property
    def texts(self) -> tuple[str, ...]:
        """The families that are calibrated."""
        plain = (name for name, row in DEFENSES.items() if not isinstance(row, Preset) and name not in LEFT_OUT)
        return self.defenses or (*plain, *STACKS)

    def families(self) -> dict[str, Family]:
        """By a label that can name a file."""
        found: dict[str, Family] = {}
        for text in self.texts:
            family = parse_family(text)
            label = label_of(family)
            if label in found:
                raise ConfigError(f"{text} is there twice", key="defenses")
            found[label] = family
        return found

    def study(self) -> StudySettings:
        """The training and the attacks, without a defense to compare."""
        given = {one.name: getattr(self, one.name) for one in fields(StudySettings)}
        return StudySettings(**{**given, "defenses": ()})


LEFT_OUT = ("none", "stack", "random-policy")  # random policies differ; the default one is as good as any


def label_of(family: Family) -> str:
    """`gaussian`, `dpsgd+prune`; the options that are given follow.

    >>> label_of(parse_family("dpsgd:clip=0.5")), label_of(parse_family(STACKS[0]))
    ('dpsgd-0.5', 'dpsgd+prune-0.9')
    """
    rows = family.choice.options.get("of")
    if rows is None:
        return slug("-".join([family.choice.name, *map(str, family.choice.options.values())]))
    return slug("+".join("-".join(map(str, row.values())) for row in rows))


def check_settings(settings: RecommendSettings) -> dict[str, Family]:
    """The families; ConfigError if it cannot be done. Loads nothing."""
    kinds = get_type_hints(RecommendSettings)
    for name in OWN:
        check(getattr(settings, name), kinds[name], name)
    for name, (low, high) in RANGES.items():
        if not low <= getattr(settings, name) <= high:
            raise ConfigError(f"must be between {low} and {high:,}, got {getattr(settings, name):,}", key=name)
    if not 0 <= settings.spare <= 100:
        raise ConfigError(f"must be between 0 and 100 points, got {settings.spare:g}", key="spare")
    check_limit(settings.named_at_most, settings.lineup)
    check_study(settings.study())
    try:
        return settings.families()
    except ConfigError as error:
        raise replace_key(error) from error


def replace_key(error: ConfigError) -> ConfigError:
    """The family of a calibration is one of `defenses` here."""
    return ConfigError(error.message.removeprefix("defense: "), key="defenses")
