"""Fails if the tests leave too much of what decides about a verdict untouched: lines and branches, each by itself.

python gates/coverage_gate.py coverage.json
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

LINES, BRANCHES = 95.0, 90.0  # percent
ROOMS = ("audit/verdict", "experiment/journal", "experiment/seal", "capture", "config", "core/interval")
COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main(path: str) -> int:
    measured = json.loads(Path(path).read_text())["files"]
    rooms = {room: by_room(measured, room) for room in ROOMS}
    failed = False
    for room, (lines, branches) in rooms.items():
        enough = lines >= LINES and branches >= BRANCHES
        failed |= not enough
        print(f"{room:20} lines {lines:5.1f} %  branches {branches:5.1f} %{'' if enough else '  too few'}")
    if failed:
        print(f"needed: lines {LINES:g} %, branches {BRANCHES:g} %; `coverage report` names what is missing")
    return int(failed)


def by_room(measured: Mapping[str, Mapping[str, Mapping[str, int]]], room: str) -> tuple[float, float]:
    total: dict[str, int] = defaultdict(int)
    for file, found in measured.items():
        if file.removeprefix("src/gradveil/").startswith((f"{room}/", f"{room}.py")):
            for name in COUNTS:
                total[name] += found["summary"][name]
    if not total["num_statements"]:
        raise SystemExit(f"{room}: nothing was measured")
    lines = 100 * total["covered_lines"] / total["num_statements"]
    return lines, 100 * total["covered_branches"] / max(1, total["num_branches"]) if total["num_branches"] else 100.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
