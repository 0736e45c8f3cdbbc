"""The defenses of a study and the baselines that belong into every comparison, each with a label of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from gradveil.core.check import complete
from gradveil.core.choice import Choice, label_of, parse_choice, split_outside
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.preset import fact_of
from gradveil.defenses import DEFENSES

Role = Literal["none", "noise", "random", "defense"]
NOISE = "gaussian"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One mark of the plot: a defense at one strength."""

    label: str
    choice: Choice
    role: Role = "defense"

    def build(self) -> Defense:
        return DEFENSES[self.choice.name](**self.choice.options)

    @property
    def scale(self) -> float:
        """Of the noise baseline; no defense is noise of scale 0."""
        return float(self.choice.options.get("scale", 0.0))


def candidates(texts: Sequence[str], scales: Sequence[float], random_policies: int) -> tuple[Candidate, ...]:
    """No defense, noise, random policies, and what is asked for, each once."""
    found = [Candidate(label="none", choice=Choice(name="none"), role="none"), *map(noise, sorted(set(scales)))]
    for number in range(random_policies):
        choice = Choice(name="random-policy", options={"seed": number})
        found.append(Candidate(label=f"random-policy-{number}", choice=choice, role="random"))
    requested = [_candidate(choice) for text in texts for choice in strengths(text)]
    distinct: dict[str, Candidate] = {}
    for one in (*found, *requested):
        distinct.setdefault(_identity(one.choice), one)
    return tuple(_number_labels(list(distinct.values())))


def noise(scale: float) -> Candidate:
    """Gaussian noise of one scale."""
    if not (isinstance(scale, int | float) and 0 < scale < float("inf")):
        raise ConfigError(f"must be a scale above 0, got {scale}", key="noise")
    choice = Choice(name=NOISE, options={"scale": float(scale)})
    return Candidate(label=label_of(choice), choice=choice, role="noise")


def strengths(text: str) -> list[Choice]:
    """One choice for every combination of the values that are listed.

    >>> [choice.options for choice in strengths("gaussian:scale=1e-3,1e-2")]
    [{'scale': 0.001}, {'scale': 0.01}]
    >>> [choice.options for choice in strengths("ats:3-1-7,43-18-18")]
    [{'policy': '3-1-7'}, {'policy': '43-18-18'}]
    """
    name, colon, options = text.partition(":")
    if not colon:
        return [parse_choice(text, "defenses", DEFENSES)]
    values: dict[str, list[str]] = {}
    key = fact_of(DEFENSES.get(name.strip()), "first_option", "")
    for part in split_outside(options, ","):
        given, equals, value = part.partition("=")
        key = given.strip() if equals else key
        values.setdefault(key, []).append(value if equals else part)
    if "" in values:
        return [parse_choice(text, "defenses", DEFENSES)]  # which says what is wrong with it
    each = product(*([f"{key}={value}" for value in some] for key, some in values.items()))
    return [parse_choice(f"{name}:{','.join(pairs)}", "defenses", DEFENSES) for pairs in each]


def _candidate(choice: Choice) -> Candidate:
    role: Role = "none" if choice.name == "none" else "noise" if _is_noise(choice) else "defense"
    return Candidate(label=label_of(choice), choice=choice, role=role)


def _is_noise(choice: Choice) -> bool:
    return choice.name == NOISE and set(choice.options) <= {"scale"}


def _identity(choice: Choice) -> str:
    if choice.name not in DEFENSES:
        raise unknown("defense", choice.name, DEFENSES, "defenses")
    return f"{choice.name} {sorted(complete(DEFENSES[choice.name], choice.options).items())!r}"


def _number_labels(found: Sequence[Candidate]) -> Iterator[Candidate]:
    """Labels name folders and files: two that are the same get numbers."""
    seen: dict[str, int] = {}
    for one in found:
        seen[one.label] = again = seen.get(one.label, 0) + 1
        yield one if again == 1 else replace(one, label=f"{one.label[:58]}.{again}")
