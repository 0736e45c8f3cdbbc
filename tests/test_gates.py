"""The gates can close: every kind of fault is made, one at a time, and too little coverage fails."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gates"))
import coverage_gate  # pyright: ignore[reportMissingImports]
import mutate  # pyright: ignore[reportMissingImports]

SOURCE = '''
"""Text, which is left alone."""
def f(x: int = 3, *, deep: bool = True) -> int:
    """So is this."""
    if x < 4 and not deep:
        print("text")
    found = [y * 2 for y in range(x) if y]
    return max(found) + 1
'''
EXPECTED = {
    ("constant", "4"), ("constant", "False"), ("condition", "if not (x < 4 and (not deep)):"),
    ("boolean", "x < 4 or not deep"), ("comparison", "x <= 4"), ("condition", "+deep"), ("statement", "None"),
    ("arithmetic", "y / 2"), ("constant", "3"), ("condition", "for y in range(x) if not y"), ("call", "min(found)"),
    ("arithmetic", "max(found) - 1"), ("constant", "2"), ("result", "return None"),
}  # fmt: skip


def test_every_kind_of_fault_is_made_one_at_a_time() -> None:
    made = list(mutate.mutants_of("m.py", SOURCE))
    assert {(one.kind, one.after.strip()) for one in made} >= EXPECTED
    assert len({ast.unparse(one.code) for one in made}) == len(made)
    assert len({one.key for one in made}) == len(made)
    for one in made:
        assert ast.unparse(one.code) != ast.unparse(ast.parse(SOURCE))
        compile(one.code, "m.py", "exec")


def test_a_fault_changes_what_the_code_does() -> None:
    (faulty,) = (one for one in mutate.mutants_of("m.py", "def f(x):\n    return x < 4\n") if one.kind == "comparison")
    found: dict = {}
    exec(compile(faulty.code, "m.py", "exec"), found)
    assert found["f"](4) is True


def report(path: Path, **changes: int) -> str:
    full = {"covered_lines": 100, "num_statements": 100, "covered_branches": 20, "num_branches": 20}
    names = [f"src/gradveil/{room}{'' if room in MODULES else '/x'}.py" for room in coverage_gate.ROOMS]
    files = {name: {"summary": dict(full)} for name in names}
    files[names[0]]["summary"] |= changes
    path.write_text(json.dumps({"files": files}))
    return str(path)


MODULES = ("experiment/journal", "experiment/seal", "core/interval")


@pytest.mark.parametrize(
    ("changes", "failed"),
    [({}, 0), ({"covered_lines": 95}, 0), ({"covered_lines": 94}, 1), ({"covered_branches": 18}, 0),
     ({"covered_branches": 17}, 1)],
)  # fmt: skip
def test_the_gate_closes_where_too_little_is_reached(changes: dict, failed: int, tmp_path: Path) -> None:
    assert coverage_gate.main(report(tmp_path / "coverage.json", **changes)) == failed


def test_a_room_that_was_not_measured_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "coverage.json").write_text(json.dumps({"files": {}}))
    with pytest.raises(SystemExit, match="nothing was measured"):
        coverage_gate.main(str(tmp_path / "coverage.json"))
