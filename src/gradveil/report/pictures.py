"""The pictures of a cell, most leaked first, each beside what the attacker would have shown without the update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradveil.audit.results import Run
from gradveil.audit.verdict.estimate import CellResult
from gradveil.audit.verdict.leak import Baselines, Place, lookups, place
from gradveil.experiment.record import Record
from gradveil.report.figures import looks_same, png_uri
from gradveil.report.scores import leakage

SHOWN = 13  # pictures per cell: one large and rows of twelve; all of them are in the plot and in the journal


@dataclass(frozen=True, kw_only=True)
class ShownPicture:
    """One picture; `original` is empty where nobody has it, `fed` where it looks the same, `without` where there is no
    such control."""

    record: Record
    original: str
    fed: str
    reconstructed: str
    without: str

    @property
    def pictures(self) -> int:
        return 1 + bool(self.original) + bool(self.fed) + bool(self.without)


def prior_only(run: Run) -> dict[Place, Record]:
    """What each attack made of each picture without its update."""
    return {place(record): record for record in run.records if record.control == "prior" and record.status == "ok"}


def select_pictures(
    run: Run, cell: CellResult, without: Mapping[Place, Record], baselines: Baselines
) -> list[ShownPicture]:
    """The most leaked pictures of a cell: by how surely the original is found in a gallery, then by closeness."""

    def shown_first(record: Record) -> tuple[bool, bool, int, float]:
        searches = sum(baselines.is_found(record, name) for name in lookups())
        return baselines.is_leaked(record), baselines.is_identified(record), searches, leakage(record, run.facts)

    scored = sorted((r for r in cell.records if r.status == "ok"), key=shown_first, reverse=True)
    found = [_show(run, record, without.get(place(record))) for record in scored[:SHOWN]]
    return [exhibit for exhibit in found if exhibit is not None]


def _show(run: Run, record: Record, control: Record | None) -> ShownPicture | None:
    pictures = run.pictures(record)
    if pictures is None:
        return None
    unseen = run.pictures(control) if control else None
    original, fed = pictures.original, pictures.fed
    same = original is None or fed is None or looks_same(original, fed)
    return ShownPicture(
        record=record,
        original="" if original is None else png_uri(original),
        fed="" if same or fed is None else png_uri(fed),
        reconstructed=png_uri(pictures.reconstructed),
        without=png_uri(unseen.reconstructed) if unseen else "",
    )
