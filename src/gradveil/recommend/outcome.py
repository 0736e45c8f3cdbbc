"""What a recommendation found: every defense with its strength and its cost, and the one to deploy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradveil.calibrate.family import Family
from gradveil.calibrate.outcome import Calibrated, Step
from gradveil.core.files import private_files, write_whole
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.outcome import Point

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Advised:
    """One family. What is missing has not been reached, was not trained, or was not attacked.

    reason: why it is not calibrated. after: the line-up of its own trained models, by stage. again: how often it was
    made stronger because those did not hold the limit.
    """

    label: str
    family: Family
    found: Calibrated | None = None
    reason: str = ""
    point: Point | None = None
    again: int = 0
    after: Mapping[str, Step] = field(default_factory=dict)

    @property
    def reached(self) -> bool:
        return self.found is not None and self.found.reached

    @property
    def name(self) -> str:
        """Of what is trained and attacked: each strength has its own."""
        return f"{self.label}.{self.again + 1}" if self.again else self.label

    @property
    def strength(self) -> Step | None:
        return None if self.found is None else self.found.enough

    @property
    def candidate(self) -> Candidate:
        assert self.found is not None
        assert self.found.choice is not None
        return Candidate(label=self.name, choice=self.found.choice)

    def holds(self, limit: float) -> bool:
        """Whether its trained models stay below the limit, if any were looked at."""
        worst = self.worst_after
        return worst is None or worst.at_most <= limit

    @property
    def cost(self) -> float | None:
        """Points of accuracy, over the same trainings."""
        return None if self.point is None or self.point.cost is None else 100 * self.point.cost.mean

    @property
    def worst_after(self) -> Step | None:
        return max(self.after.values(), key=lambda step: step.at_most, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "reached": self.reached,
            "made_stronger": self.again,
            "reason": self.reason,
            "calibration": self.found and self.found.to_json(),
            "after_training": {stage: step.to_json() for stage, step in self.after.items()},
            "point": self.point and self.point.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class Advice:
    """All families, and the label of the one to deploy: none where nothing reaches the limit within what is spared.

    guessing: the accuracy of who always names the most frequent class, against which a model has to learn something.
    """

    settings: Mapping[str, Any]
    advised: tuple[Advised, ...]
    plain: Point
    winner: str = ""
    guessing: float = 0.0
    provenance: Mapping[str, Any] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()

    @property
    def limit(self) -> float:
        return float(self.settings["named_at_most"])

    @property
    def has_learned(self) -> bool:
        """Whether the undefended model is better than naming one class: only then does the cost say something."""
        accuracy = self.plain.accuracy
        return accuracy is None or accuracy.mean > self.guessing

    @property
    def best(self) -> Advised | None:
        return next((one for one in self.advised if one.label == self.winner), None)

    @property
    def deploy(self) -> str:
        """As `veil` and the command line read it."""
        best = self.best
        return best.found.text if best is not None and best.found is not None else ""

    def to_json(self) -> dict[str, Any]:
        best = self.best
        calibration = best.found.to_json() if best is not None and best.found is not None else {}
        return {
            "schema": SCHEMA,
            "settings": dict(self.settings),
            "provenance": dict(self.provenance),
            "reached": best is not None,
            "deploy": self.deploy or None,
            "veil": f"gradveil.veil({self.deploy!r})" if self.deploy else None,
            "table": calibration.get("settings"),
            "sentences": list(self.sentences),
            "undefended": self.plain.to_json(),
            "guessing": self.guessing,
            "winner": self.winner or None,
            "defenses": [one.to_json() for one in self.advised],
        }

    def write(self, path: str | Path) -> None:
        content = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
        with private_files():
            write_whole(Path(path), content.encode())
