"""The certificate of a run, read back: what its noise alone rules out, whoever attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri

from gradveil.audit.results import Run
from gradveil.dp.trade_off import identified_by_gaussian
from gradveil.experiment.plausible import is_number


@dataclass(frozen=True, kw_only=True)
class CertifiedShare:
    """Any server identifies at most this share of the pictures; `kappa` is what guessing without updates identifies."""

    at_most: float
    kappa: float
    kind: str

    @property
    def advantage(self) -> float:
        return self.at_most - self.kappa

    def at(self, chance: float) -> float:
        """The most that is identified of what guessing identifies with another chance.

        By the same noise where it is known; else by the bound being concave, and for a smaller chance as it is.
        """
        if self.kind == "gaussian" and 0 < self.kappa < 1 and self.at_most < 1:
            return identified_by_gaussian(chance, float(ndtri(self.at_most) - ndtri(self.kappa)))
        return min(1.0, self.at_most * max(1.0, chance / self.kappa)) if self.kappa else 1.0

    def to_json(self) -> dict[str, Any]:
        return {"at_most": self.at_most, "kappa": self.kappa, "advantage": self.advantage, "kind": self.kind}


def read_certificate(run: Run, scenario: str, defense: str) -> CertifiedShare | None:
    """None: there is none, or it is not one that a run writes."""
    table: Any = run.provenance.get("certificates")
    for name in (scenario, defense):
        table = table.get(name) if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or str(table.get("kind", "none")) == "none":
        return None
    at_most, kappa = (_read_share(table.get(name)) for name in ("at_most", "kappa"))
    if at_most is None or kappa is None or kappa > at_most:
        return None
    return CertifiedShare(at_most=at_most, kappa=kappa, kind=str(table["kind"]))


def _read_share(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and is_number(value) and 0 <= value <= 1 else None
