"""What a training run says at its end, for people and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradveil.dp.budget import Budget
from gradveil.train.result import Trained


def summary(trained: Trained, folder: Path, privacy: Budget | None = None) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "accuracy": trained.accuracy,
        "worst": trained.curve[-1].worst if trained.curve else None,
        "rounds": len(trained.curve),
        "void": sum(one.void for one in trained.curve),
        "dropped": sum(one.dropped for one in trained.curve),
        "checkpoints": {str(round): str(path) for round, path in trained.checkpoints.items()},
        "notes": list(trained.notes),
        "privacy": None if privacy is None else privacy.as_json(),
        "curve": [{"round": one.round, "accuracy": one.accuracy} for one in trained.curve if one.accuracy is not None],
    }


def sentences(trained: Trained, folder: Path, audited: Sequence[str], privacy: Budget | None = None) -> list[str]:
    lines = [f"note: {note}" for note in trained.notes]
    if void := sum(one.void for one in trained.curve):
        lines.append(f"{void} of {len(trained.curve)} rounds were void: no client sent finite numbers")
    if dropped := sum(one.dropped for one in trained.curve):
        names = sorted({name for one in trained.curve for name in one.names})
        told = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
        lines.append(f"{dropped} replies were left out since they were not finite: {told}")
    lines.append(accuracy_line(trained))
    if privacy is not None:
        lines.append(str(privacy))
    lines.append(f"folder: {folder}")
    if trained.checkpoints:
        lines.append("checkpoints: " + ", ".join(path.name for path in trained.checkpoints.values()))
        lines.append(audit_line(trained, audited))
    return lines


def accuracy_line(trained: Trained) -> str:
    if trained.accuracy is None:
        return "accuracy: not measured"
    last = trained.curve[-1]
    worst = "" if last.worst is None else f", of the worst node {100 * last.worst:.1f} %"
    return f"accuracy: {100 * trained.accuracy:.1f} % after {len(trained.curve)} rounds{worst}"


def audit_line(trained: Trained, audited: Sequence[str]) -> str:
    """How to go on."""
    first = str(next(iter(trained.checkpoints.values())))
    return f"go on with: {shlex.join(['gradveil', 'audit', *audited, '--weights', first])}"
