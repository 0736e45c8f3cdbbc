"""What a calibration found: the curve, and the least strength that is enough."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gradveil.calibrate.family import write_choice, write_table
from gradveil.core.choice import Choice
from gradveil.core.files import private_files, write_whole
from gradveil.core.interval import at_most, rate_interval
from gradveil.core.strength import shorten
from gradveil.dp.certificate import Certificate

SCHEMA = 1
NEARLY = 1e-9
Way = Literal["one pass", "ladder"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """How many of the pictures are named at one strength: a sum of chances, so it may be no whole number."""

    strength: Any
    named: float
    pictures: int

    @property
    def share(self) -> float:
        return self.named / self.pictures

    @property
    def at_most(self) -> float:
        """The upper 95 % bound; a picture counts once, however often its noise is drawn."""
        return at_most(_whole(self.named), self.pictures)

    @property
    def interval(self) -> tuple[float, float]:
        """Two-sided, 95 %; the sum is rounded outward."""
        low = rate_interval(int(self.named + NEARLY), self.pictures).low
        return low, rate_interval(_whole(self.named), self.pictures).high

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "strength": self.strength,
            "named": shorten(self.named, 6),
            "of": self.pictures,
            "share": shorten(self.share, 6),
            "low": low,
            "high": high,
            "at_most": self.at_most,
        }


def _whole(named: float) -> int:
    return -int(-(named - NEARLY) // 1)


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """One family of defenses. `curve` goes from the weakest to the strongest and does not rise.

    enough: the least strength at which the upper bound is at most the limit; None: no strength is
    likely, at_least: the strength at which the share itself is at most the limit, and below which not even the lower
    bound is: where the least strength that is enough really lies. None: beyond the strongest
    """

    option: str
    way: Way
    kind: str  # of the likelihood: exact, bound, estimated
    limit: float
    candidates: int
    curve: tuple[Step, ...]
    enough: Step | None = None
    likely: Any = None
    at_least: Any = None
    choice: Choice | None = None  # what is enough, else what was strongest
    certificate: Certificate | None = None  # of what is enough

    @property
    def reached(self) -> bool:
        return self.enough is not None

    @property
    def strongest(self) -> Step:
        return self.curve[-1]

    @property
    def chance(self) -> float:
        return 1 / self.candidates

    @property
    def text(self) -> str:
        """The defense as the command line reads it."""
        return write_choice(self.choice) if self.choice else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "option": self.option,
            "reached": self.reached,
            "strength": self.enough.strength if self.enough else None,
            "likely": self.likely,
            "at_least": self.at_least,
            "deploy": self.text if self.reached else None,
            "settings": write_table(self.choice) if self.reached and self.choice else None,
            "named": self.enough.to_json() if self.enough else None,
            "strongest": self.strongest.to_json(),
            "certificate": self.certificate and self.certificate.to_json(),
            "candidates": self.candidates,
            "chance": self.chance,
            "pictures": self.strongest.pictures,
            "way": self.way,
            "likelihood": self.kind,
            "curve": [step.to_json() for step in self.curve],
        }


def smooth(steps: Sequence[Step]) -> tuple[Step, ...]:
    """From the weakest to the strongest, nowhere below a stronger one: what falls there is chance."""
    found: list[Step] = []
    for step in reversed(steps):
        most = max(step.named, found[-1].named) if found else step.named
        found.append(Step(strength=step.strength, named=most, pictures=step.pictures))
    return tuple(reversed(found))


def least_strengths(curve: Sequence[Step], limit: float) -> tuple[Step | None, Any, Any]:
    """The first that is enough by the upper bound, by the share, by the lower bound."""
    enough = next((step for step in curve if step.at_most <= limit), None)
    likely = next((step.strength for step in curve if step.share <= limit), None)
    at_least = next((step.strength for step in curve if step.interval[0] <= limit), None)
    return enough, likely, at_least


@dataclass(frozen=True, kw_only=True)
class CalibrationOutcome:
    """A calibration with its settings and where it comes from."""

    settings: Mapping[str, Any]
    found: Calibrated
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "settings": dict(self.settings),
            "provenance": dict(self.provenance),
            "named_at_most": self.found.limit,
            **self.found.to_json(),
        }

    def write(self, path: str | Path) -> None:
        content = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
        with private_files():
            write_whole(Path(path), content.encode())
