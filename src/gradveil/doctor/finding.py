"""What was found, why it matters, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["ok", "note", "problem"]
ORDER: tuple[Level, ...] = ("problem", "note", "ok")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a diagnosis. Settings in the text are named in backticks."""

    topic: str
    level: Level
    what: str
    why: str = ""
    do: str = ""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All findings, in the order in which they were made."""

    findings: tuple[Finding, ...]
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of the audit that would be run
    seconds: float = 0.0

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.level == "problem")

    @property
    def is_well(self) -> bool:
        return not self.problems

    @property
    def by_level(self) -> tuple[Finding, ...]:
        """Problems first."""
        return tuple(sorted(self.findings, key=lambda one: ORDER.index(one.level)))

    def to_json(self) -> dict[str, Any]:
        found = [{key: value for key, value in asdict(one).items() if value} for one in self.by_level]
        return {"well": self.is_well, "findings": found, "seconds": round(self.seconds, 1)}
