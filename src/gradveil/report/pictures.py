"""Pictures beside what was made of them: a row a picture, a column a defense, most leaked first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from gradveil.audit.results import Run
from gradveil.audit.verdict.estimate import CellResult
from gradveil.audit.verdict.leak import Baselines, Place, lookups, place
from gradveil.audit.verdict.tally import Tally
from gradveil.experiment.record import Record
from gradveil.report.figures import looks_same, png_uri
from gradveil.report.scores import leakage

SHOWN = 13  # pictures; all of them are in the plot and in the journal
Standing = tuple[bool, bool, int, float]
Found = tuple[Standing, Record]
NOTHING: Standing = (False, False, -1, float("-inf"))


@dataclass(frozen=True, kw_only=True)
class ShownPicture:
    """What the best attack made of one picture under one defense. `fed` is empty where it looks like the original."""

    record: Record
    fed: str
    reconstructed: str


@dataclass(frozen=True, kw_only=True)
class PictureRow:
    """One private picture. `original` is empty where nobody has it, `without` where no attack was run without an
    update."""

    client: str
    example: int
    original: str
    without: str
    shown: Sequence[ShownPicture | None]  # by defense; None: every trial failed, or no picture was kept


@dataclass(frozen=True, kw_only=True)
class PictureTable:
    """Of one scenario."""

    defenses: Sequence[str]
    rows: Sequence[PictureRow]
    scored: int  # pictures in the run


def prior_only(run: Run) -> dict[Place, Record]:
    """What each attack made of each picture without its update."""
    return {place(record): record for record in run.records if record.control == "prior" and record.status == "ok"}


def stand(run: Run, record: Record, baselines: Baselines) -> Standing:
    """By how surely the original is found in a gallery, then by closeness."""
    searches = sum(baselines.is_found(record, name) for name in lookups())
    return baselines.is_leaked(record), baselines.is_identified(record), searches, leakage(record, run.facts)


def tabulate_pictures(
    run: Run, cells: Sequence[CellResult], without: Mapping[Place, Record], baselines: Baselines
) -> PictureTable:
    """Of each picture and defense the attack that saw most."""
    defenses = list(dict.fromkeys(cell.defense for cell in cells))
    defended = [name for name in defenses if not run.undefended(name)] or defenses  # without one all may leak alike
    best = find_best(run, chain.from_iterable(cell.records for cell in cells), baselines)

    def leakiest(one: tuple[str, int]) -> list[Standing]:
        found = (best.get((name, *one)) for name in (*defended, *defenses))
        return [NOTHING if row is None else row[0] for row in found]

    order = sorted(dict.fromkeys(key[1:] for key in best), key=leakiest, reverse=True)
    rows = (_row(run, [best.get((name, *one)) for name in defenses], without) for one in order[:SHOWN])
    return PictureTable(defenses=defenses, rows=[row for row in rows if row is not None], scored=len(order))


def find_worst(run: Run, tallies: Sequence[Tally], baselines: Baselines) -> PictureRow | None:
    """The one picture, under the one defense, of which an attack saw most."""
    best = find_best(run, chain.from_iterable(tally.records for tally in tallies), baselines)
    worst = max(best.values(), key=lambda row: row[0], default=None)
    return None if worst is None else _row(run, [worst], prior_only(run))


def find_best(run: Run, records: Iterable[Record], baselines: Baselines) -> dict[tuple[str, str, int], Found]:
    """By defense, client and picture."""
    best: dict[tuple[str, str, int], Found] = {}
    for record in records:
        if record.status == "ok":
            key, standing = (record.defense, record.client, record.example), stand(run, record, baselines)
            if key not in best or standing > best[key][0]:
                best[key] = standing, record
    return best


def _row(run: Run, found: Sequence[Found | None], without: Mapping[Place, Record]) -> PictureRow | None:
    """None where no picture was kept."""
    shown = [None if one is None else _show(run, one[1]) for one in found]
    first = next((one.record for one in shown if one is not None), None)
    if first is None:
        return None
    pictures, records = run.pictures(first), [one[1] for one in found if one is not None]
    original = None if pictures is None else pictures.original
    return PictureRow(
        client=first.client,
        example=first.example,
        original="" if original is None else png_uri(original),
        without=_without(run, records, without),
        shown=shown,
    )


def _without(run: Run, records: Sequence[Record], without: Mapping[Place, Record]) -> str:
    """What one of these attacks makes of the picture without its update."""
    controls = (run.pictures(without[place(record)]) for record in records if place(record) in without)
    return next((png_uri(pictures.reconstructed) for pictures in controls if pictures is not None), "")


def _show(run: Run, record: Record) -> ShownPicture | None:
    pictures = run.pictures(record)
    if pictures is None:
        return None
    original, fed = pictures.original, pictures.fed
    same = original is None or fed is None or looks_same(original, fed)
    return ShownPicture(
        record=record,
        fed="" if same or fed is None else png_uri(fed),
        reconstructed=png_uri(pictures.reconstructed),
    )
