"""The skeleton of an experiment is written once: no six equal lines in two of the rooms that stand on it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src/gradveil"
ROOMS = ("audit", "search", "tradeoff", "train", "protect", "calibrate", "recommend")
LENGTH = 6  # lines with code on them


def runs_of_lines(room: str) -> dict[tuple[str, ...], str]:
    """Every run of lines of a room, with its place; imports and what has no word in it do not count."""
    found: dict[tuple[str, ...], str] = {}
    for path in sorted((SOURCES / room).rglob("*.py")):
        plain = [line.strip() for line in path.read_text().splitlines()]
        lines = [line for line in plain if any(map(str.isalpha, line)) and not line.startswith(("from ", "import "))]
        for first in range(len(lines) - LENGTH + 1):
            found.setdefault(tuple(lines[first : first + LENGTH]), f"{path.relative_to(SOURCES)}")
    return found


def test_no_six_lines_are_written_twice() -> None:
    each = {room: runs_of_lines(room) for room in ROOMS}
    copies = {
        f"{each[one][lines]} and {each[other][lines]}: {' | '.join(lines)}"
        for one, other in combinations(ROOMS, 2)
        for lines in each[one].keys() & each[other].keys()
    }
    assert not copies, "\n".join(sorted(copies))
