"""What a check measured in one layer, and what all of them found in a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gradveil.core.errors import GradveilError

NOTHING = "nothing found by these checks"
FOUND = "planted structure found"
SHOWN = 5  # findings in an error's one line


class PlantedModelError(GradveilError):
    """A model with structure that serves reconstruction: do not train on it."""

    exit_code = 3


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One statistic of one layer. `found` if it lies beyond the threshold."""

    check: str
    layer: str
    statistic: float
    threshold: float
    found: bool
    sentence: str
    details: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Everything measured, what was found, and what could not be looked at."""

    checked: tuple[Measurement, ...]
    skipped: tuple[str, ...] = ()  # one reason each

    @property
    def findings(self) -> tuple[Measurement, ...]:
        return tuple(m for m in self.checked if m.found)

    @property
    def planted(self) -> bool:
        return bool(self.findings)

    @property
    def verdict(self) -> str:
        """`planted structure found: what, where` or `nothing found by these checks`; there is no third word."""
        if not self.planted:
            return NOTHING
        names = list(dict.fromkeys(f"{m.check} ({m.layer})" for m in self.findings))
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return f"{FOUND}: {', '.join(names[:SHOWN])}{more}"
