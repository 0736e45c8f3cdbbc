"""verdict.json: the verdict for machines. Stable: see docs/verdict.md."""

from __future__ import annotations

import json
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.verdict.estimate import CellResult, Estimate
from gradveil.audit.verdict.judge import Finding, Verdict, judge
from gradveil.core.files import private_files, write_whole
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
        "convergence": [one.to_json() for one in verdict.convergence],
        "missing": verdict.missing,
        "flags": sorted({*verdict.flags, *(flag for cell in verdict.cells if not cell.control for flag in cell.flags)}),
        "provenance": dict(run.provenance),
    }


def _finding(finding: Finding, claim: float | None) -> dict[str, Any]:
    tally = finding.tally
    found = {
        "scenario": tally.scenario,
        "regime": tally.regime,
        "defense": tally.defense,
        "verdict": finding.verdict,
        "reasons": list(finding.reasons),
        "pictures": tally.pictures,
        "leaked": tally.leaked,
        "identified": tally.identified,
        "low": tally.interval.low,
        "high": tally.interval.high,
        "at_most": tally.at_most,
        "attempted": tally.attempted,
        "failed": tally.failed,
        "searches": {search.metric: search.to_json() for search in tally.searches},
        "update_bytes": tally.bytes,
        "metrics": {name: _estimate(value) for name, value in tally.worst.items()},
    }
    return found if claim is None else found | {"claim": {"at_most": claim, "supported": finding.supports(claim)}}


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
        "flags": dict(sorted(cell.flags.items())),
    }


def _estimate(value: Estimate) -> dict[str, Any]:
    return {**vars(value)}
