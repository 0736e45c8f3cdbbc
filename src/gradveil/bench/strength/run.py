"""Settings one after the other, a file for each: what is there is not computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from gradveil.bench.engine import machine
from gradveil.bench.strength.cases import Case, make_case
from gradveil.bench.strength.contest import Entry, judge_blank
from gradveil.bench.strength.measure import Strength, is_complete, read_or_run, read_setting, write_json
from gradveil.bench.strength.peers import Peer, export_case, read_peer
from gradveil.bench.strength.settings import Setting
from gradveil.bench.strength.table import Row, make_rows, to_json

TABLE = "strength.json"


def export(strength: Strength, folder: Path) -> list[str]:
    """One file for each setting; the names of the settings."""
    for setting in strength.settings():
        export_case(make_case(setting, strength.pictures, strength.seed), folder)
    return [setting.name for setting in strength.settings()]


def run(
    strength: Strength, folder: Path, peers: Sequence[Path] = (), announce: Callable[[str], None] = lambda _text: None
) -> list[Row]:
    """All rows, setting by setting; the folder has a file of each and the table of all."""
    settings = strength.settings()
    others = [read_peer(path, [one.name for one in settings]) for path in peers]
    rows: list[Row] = []
    for number, setting in enumerate(settings, 1):
        announce(f"{number} of {len(settings)}: {setting.name}")
        rows += run_setting(strength, setting, folder, others)
    about = {"settings": strength.extent, "steps": strength.steps, "seed": strength.seed, **machine("cpu")}
    write_json(folder / TABLE, to_json(rows, about))
    return rows


def table_of(folder: Path) -> list[Row]:
    """Of every complete setting in a folder, wherever it was run, written there as the table; nothing is run."""
    rows: list[Row] = []
    for path in sorted(folder.glob("*.json")):
        if path.name != TABLE and is_complete(path):
            rows += make_rows(path.stem, *read_setting(path))
    write_json(folder / TABLE, to_json(rows, {"settings": "as in the folder"}))
    return rows


def run_setting(strength: Strength, setting: Setting, folder: Path, peers: Iterable[Peer]) -> list[Row]:
    case = make_case(setting, strength.pictures, strength.seed)
    entries = [*read_or_run(strength, case, folder / f"{setting.name}.json"), *judge_peers(case, peers)]
    return make_rows(setting.name, entries, judge_blank(case), len(case.gallery) + 1)


def judge_peers(case: Case, peers: Iterable[Peer]) -> Iterator[Entry]:
    for peer in peers:
        entry = peer.judge(case)
        if entry is not None:
            yield entry
