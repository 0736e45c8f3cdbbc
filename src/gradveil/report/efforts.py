"""Which cells of a run with limited time are shown: of each attack the largest effort, and others that saw more."""

from __future__ import annotations

from collections.abc import Sequence

from gradveil.audit.ladder import base_of, is_whole, rung_of
from gradveil.audit.verdict.estimate import CellResult


def select_cells(cells: Sequence[CellResult]) -> list[CellResult]:
    """Without those whose pictures a larger effort of the same attack has all been run on, with no less found."""
    return [cell for cell in cells if is_whole(cell.attack) or not any(_covers(other, cell) for other in cells)]


def _covers(other: CellResult, cell: CellResult) -> bool:
    if _what(other) != _what(cell) or rung_of(other.attack) >= rung_of(cell.attack):
        return False
    pictures = {(record.client, record.example) for record in cell.records}
    more = (cell.leaked, cell.identified or 0) <= (other.leaked, other.identified or 0)
    return more and pictures <= {(record.client, record.example) for record in other.records}


def _what(cell: CellResult) -> tuple[str, ...]:
    return cell.scenario, cell.defense, base_of(cell.attack), cell.attacker, cell.control
