"""What a study found: one point for each defense and strength, the front, and how each compares with noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gradveil.core.files import private_files, write_whole
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.estimates import Between
from gradveil.tradeoff.leakage import Leakage

SCHEMA = 1
Standing = Literal["leaks less", "leaks more", "not told apart", "no such noise"]


@dataclass(frozen=True, kw_only=True)
class Against:
    """A defense beside the strongest noise that keeps its accuracy. Differences are defense minus noise."""

    noise: str  # label of that point
    accuracy: Between  # over the same trainings
    leakage: Between  # over the same pictures, in the measure of the study
    standing: Standing
    conclusion: str

    def to_json(self) -> dict[str, Any]:
        plain = {key: value for key, value in vars(self).items() if key != "conclusion"} | {"said": self.conclusion}
        return {**plain, "accuracy": self.accuracy.to_json(), "leakage": self.leakage.to_json()}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One defense at one strength. A point that failed has a reason and no place on the plot."""

    candidate: Candidate
    accuracies: Mapping[int, float] = field(default_factory=dict)  # by seed
    accuracy: Between | None = None
    cost: Between | None = None  # accuracy without a defense minus its own, over the same trainings
    leakage: Leakage | None = None
    failed: str = ""
    missing: str = ""  # what has not been run yet
    against: Against | None = None
    on_front: bool = False
    curve: Mapping[int, float] = field(default_factory=dict)  # round -> mean accuracy
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.candidate.label

    @property
    def measured(self) -> bool:
        """Whether it has a place on the plot; trainings may still be missing, which the study's flags say."""
        return self.accuracy is not None and self.leakage is not None and not self.failed

    @property
    def verdict(self) -> str:
        if self.failed or self.leakage is None:
            return "inconclusive" if self.failed else "not evaluated"
        return self.leakage.verdict

    @property
    def believed(self) -> bool:
        """Little leakage means something only if the attacks were fit to find it, and knew the defense."""
        return self.measured and self.verdict in ("leaks", "no leak found", "bounded")

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "defense": {"name": self.candidate.choice.name, **self.candidate.choice.options},
            "role": self.candidate.role,
            "verdict": self.verdict,
            "failed": self.failed,
            "missing": self.missing,
            "accuracies": {str(number): value for number, value in self.accuracies.items()},
            "accuracy": self.accuracy and self.accuracy.to_json(),
            "cost": self.cost and self.cost.to_json(),
            "leakage": self.leakage and self.leakage.to_json(),
            "against_noise": self.against and self.against.to_json(),
            "on_front": self.on_front,
            "curve": {str(number): value for number, value in self.curve.items()},
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class StudyOutcome:
    """All points, baselines first."""

    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    points: tuple[Point, ...]
    front: tuple[str, ...]  # labels, from little leakage to much
    flags: tuple[str, ...]  # doubts about the study as a whole

    @property
    def measure(self) -> str:
        return str(self.settings["measure"])

    def point(self, label: str) -> Point:
        return next(point for point in self.points if point.label == label)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "settings": dict(self.settings),
            "provenance": dict(self.provenance),
            "measure": self.measure,
            "points": [point.to_json() for point in self.points],
            "front": list(self.front),
            "flags": list(self.flags),
        }

    def write(self, path: str | Path) -> None:
        content = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
        with private_files():
            write_whole(Path(path), content.encode())
