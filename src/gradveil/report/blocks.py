"""A run in the order in which it is read: the regimes apart, in each the scenarios, in each what was found.

Diagnostic and deployment are never counted together: the first says whether attacks work, the second what they do
to the configured system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradveil.audit import canaries
from gradveil.audit.results import Run
from gradveil.audit.verdict import Finding, Verdict
from gradveil.audit.verdict.estimate import CellResult
from gradveil.audit.verdict.leak import CLOSENESS
from gradveil.report.efforts import select_cells

KINDS = {"prior": "prior only", "random": "random update", "another": "another picture"}
UNCHANGED = ("name", "role", "regime", "model", "images")  # of no interest when two scenarios are compared


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One audited scenario: its defenses worst first, and the cells of each worst first."""

    name: str
    role: str
    changed: str  # what sets it apart from the audited one, if it varies that
    summary: str  # its settings in words
    findings: Sequence[Finding]
    cells: Sequence[CellResult]


@dataclass(frozen=True, kw_only=True)
class Block:
    """All scenarios of one regime."""

    regime: str
    scenes: Sequence[Scene]

    @property
    def audited(self) -> list[Scene]:
        return [scene for scene in self.scenes if scene.role == "audited"]

    @property
    def canaries(self) -> list[Scene]:
        return [scene for scene in self.scenes if scene.role == canaries.ROLE]

    @property
    def variations(self) -> list[tuple[Scene, Finding]]:
        """Every defense in every varied scenario, worst first."""
        rows = [(s, finding) for s in self.scenes if s.role == "variation" for finding in s.findings]
        return sorted(rows, key=lambda row: _worst_first(row[1]))


def _worst_first(finding: Finding) -> tuple[float, float, float]:
    """By re-identification, then by squared error."""
    tally = finding.tally
    near = tally.worst[CLOSENESS.name].worst if CLOSENESS.name in tally.worst else float("-inf")
    return -tally.hits / max(tally.scored, 1), -sum(search.share for search in tally.searches), -near


def blocks(run: Run, verdict: Verdict) -> list[Block]:
    """The regime of the audited scenario first."""
    findings: dict[str, dict[str, list[Finding]]] = {}
    for finding in verdict.findings:
        findings.setdefault(finding.tally.regime, {}).setdefault(finding.tally.scenario, []).append(finding)
    return [
        Block(regime=regime, scenes=[_scene(run, verdict, name, found) for name, found in by_scenario.items()])
        for regime, by_scenario in findings.items()
    ]


def _scene(run: Run, verdict: Verdict, name: str, findings: list[Finding]) -> Scene:
    about = run.scenarios.get(name, {})
    cells = select_cells([cell for cell in verdict.cells if cell.scenario == name and not cell.control])
    role, order = findings[0].tally.role, [finding.tally.defense for finding in findings]
    return Scene(
        name=name,
        role=role,
        changed=_changes_of(run, about) if role == "variation" else "",
        summary=_settings(about or run.scenario),
        findings=findings,
        cells=sorted(cells, key=lambda cell: (order.index(cell.defense), *_leakiest(cell))),
    )


def _leakiest(cell: CellResult) -> tuple[int, int, float]:
    near = cell.metrics[CLOSENESS.name].worst if CLOSENESS.name in cell.metrics else float("-inf")
    return -cell.leaked, -(cell.identified or 0), -near


def _changes_of(run: Run, about: Mapping[str, Any]) -> str:
    """Against the audited scenario: "batch size 4 instead of 1"."""
    audited = next((other for other in run.scenarios.values() if other.get("role") == "audited"), {})
    keys = [key for key in about if key not in UNCHANGED and about[key] != audited.get(key)]
    changes = [f"{key.replace('_', ' ')} {_word(about[key])} instead of {_word(audited.get(key))}" for key in keys]
    return ", ".join(changes) or "other weights"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not stated" if value is None else str(value) or "none"


def _settings(about: Mapping[str, Any]) -> str:
    parts = [
        f"{about.get('images', '?')} clients",
        f"batch size {about.get('batch_size', '?')}",
        f"local steps {about.get('local_steps', '?')}",
        f"labels {about.get('labels', '?')}",
        f"normalization {about.get('batchnorm', '?')}",
    ]
    if "trained" in about:
        parts.append("trained weights" if about["trained"] else "untrained weights")
    return ", ".join(part for part in parts if "?" not in part)


def control_cells(run: Run, verdict: Verdict) -> list[tuple[str, list[tuple[str, CellResult]]]]:
    """What the controls measured, regime by regime, each with its kind: they are never among the audited cells."""
    found: dict[str, list[tuple[str, CellResult]]] = {}
    for cell in verdict.cells:
        about = run.scenarios.get(cell.scenario, {})
        easiest = about.get("role") == "control" and not cell.control
        if kind := "positive" if easiest else KINDS.get(cell.control, ""):
            found.setdefault(str(about.get("regime", "not stated")), []).append((kind, cell))
    return list(found.items())
