"""verdict.json: the verdict for machines. Stable: see docs/verdict.md."""

from __future__ import annotations

import json
from typing import Any, get_args

from gradveil.audit.results import Run
from gradveil.audit.verdict.estimate import CellResult, Estimate
from gradveil.audit.verdict.judge import Finding, Verdict, judge
from gradveil.core.files import private_files, write_whole
from gradveil.dp.empirical import Neighbors
from gradveil.experiment.folder import VERDICT

SCHEMA = 1


def write_verdict(run: Run, claim: float | None = None) -> Verdict:
    """Judge a run and write `verdict.json` into its folder."""
    found = judge(run)
    content = json.dumps(to_json(run, found, claim), indent=2, allow_nan=False) + "\n"
    with private_files():
        write_whole(run.folder / VERDICT, content.encode())
    return found


def to_json(run: Run, verdict: Verdict, claim: float | None = None) -> dict[str, Any]:
    controls = {
        "positive": verdict.positive,
        "prior_only": verdict.prior,
        "random_update": verdict.random,
        "another_picture": verdict.another,
    }
    return {
        "schema": SCHEMA,
        "verdict": verdict.word,
        "under": verdict.under,
        "findings": [_finding(finding, claim) for finding in verdict.findings],
        "cells": [_cell(cell, run) for cell in verdict.cells if not cell.control],
        "controls": {name: check.to_json() if check else None for name, check in controls.items()},
        "each_positive": [check.to_json() for check in verdict.each_positive],
        "convergence": [one.to_json() for one in verdict.convergence],
        "missing": verdict.missing,
        "flags": sorted({*verdict.flags, *(flag for cell in verdict.cells if not cell.control for flag in cell.flags)}),
        "provenance": dict(run.provenance),
    }


def _finding(finding: Finding, claim: float | None) -> dict[str, Any]:
    tally, between = finding.tally, finding.verdict in ("leaks", "no leak found")
    found = {
        "scenario": tally.scenario,
        "role": tally.role,
        "regime": tally.regime,
        "defense": tally.defense,
        "verdict": finding.verdict,
        "reasons": list(finding.reasons),
        "pictures": tally.pictures,
        "leaked": tally.leaked,
        "identified": tally.identified,
        "exposed": tally.exposed,
        "found_otherwise": tally.otherwise,
        "updates": tally.updates,
        "low": tally.interval.low if between else None,
        "high": tally.interval.high if between else None,
        "at_most": finding.at_most,
        "evidence": [one.to_json() for one in finding.evidence],
        "linkable": finding.linkable,
        "lineup": _line_up(finding),
        "certificate": finding.certificate.to_json() if finding.certificate else None,
        "attempted": tally.attempted,
        "failed": tally.failed,
        "searches": {search.metric: search.to_json() for search in tally.searches},
        "rank": tally.rank.to_json() if tally.rank else None,
        "update_bytes": tally.bytes,
        "metrics": {name: _estimate(value) for name, value in tally.worst.items()},
    }
    if finding.reach is not None:
        found["reached"] = finding.reach.to_json()
    return found if claim is None else found | {"claim": {"at_most": claim, "supported": finding.supports(claim)}}


def _line_up(finding: Finding) -> dict[str, Any] | None:
    """`null` where none was held, which `reasons` explain if it was planned."""
    bounds = finding.bounds
    if bounds.lineup is None:
        return None
    epsilons = {name.replace("-", "_"): bounds.epsilon(name) for name in get_args(Neighbors)}
    controls = {"passed": not bounds.doubts and not bounds.exceeded, "doubts": list(bounds.doubts.all)}
    return bounds.lineup.to_json() | {"controls": controls, "empirical_epsilon": epsilons}


def _cell(cell: CellResult, run: Run) -> dict[str, Any]:
    return {
        "scenario": cell.scenario,
        "defense": cell.defense,
        "attack": cell.attack,
        "attacker": cell.attacker,
        "attempted": cell.attempted,
        "failed": cell.failed,
        "leaked": cell.leaked,
        "identified": cell.identified,
        "update_bytes": run.update_bytes(cell.scenario, cell.defense),
        "metrics": {name: _estimate(value) for name, value in cell.metrics.items()},
        "blank": _estimate(cell.blank) if cell.blank else None,
        "flags": dict(sorted(cell.flags.items())),
    }


def _estimate(value: Estimate) -> dict[str, Any]:
    return {**vars(value)}
