"""Settings one after the other, a file for each: what is there is not computed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from gradveil.bench.engine import machine
from gradveil.bench.strength.cases import Case, check_kinds, make_case
from gradveil.bench.strength.contest import Entry, judge_blank, run_contest
from gradveil.bench.strength.peers import Peer, export_case, read_peer
from gradveil.bench.strength.settings import Extent, Setting, list_settings
from gradveil.bench.strength.table import Row, make_rows, to_json
from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files, write_whole
from gradveil.core.hashes import hash_tensors
from gradveil.core.seeds import Seed

TABLE = "strength.json"
STEPS: Mapping[Extent, int] = {"quick": 60, "full": 300}  # of every stage of autoattack


@dataclass(frozen=True, kw_only=True)
class Strength:
    """What is compared. `pictures`: by kind, where its pictures lie. `only`: patterns of names of settings."""

    extent: Extent = "quick"
    pictures: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[str] = ()
    steps: int | None = None
    seed: int = 0

    @property
    def stage_steps(self) -> int:
        return self.steps or STEPS[self.extent]

    def settings(self) -> list[Setting]:
        check_kinds(self.pictures)
        found = list_settings(self.extent, self.pictures)
        chosen = [one for one in found if not self.only or any(fnmatchcase(one.name, text) for text in self.only)]
        if not chosen:
            names = ", ".join(one.name for one in found)
            raise ConfigError(f"no setting has such a name, take some of {names}", key="only")
        return chosen


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
    about = {"settings": strength.extent, "steps": strength.stage_steps, "seed": strength.seed, **machine("cpu")}
    _write(folder / TABLE, to_json(rows, about))
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


def read_or_run(strength: Strength, case: Case, path: Path) -> list[Entry]:
    """Read from the file of the setting if it is there, else run and written to it."""
    asked = {
        "steps": strength.stage_steps,
        "seed": strength.seed,
        "update": hash_tensors({**case.seen.update, "pictures": case.truth.private.images}),
    }
    if path.exists():
        return _read(path, asked)
    found = list(run_contest(case, strength.stage_steps, Seed(strength.seed).at("attack", case.setting.name)))
    _write(path, {**asked, "torch": torch.__version__, "entries": [entry.to_json() for entry in found]})
    return found


def _read(path: Path, asked: Mapping[str, Any]) -> list[Entry]:
    try:
        table = json.loads(path.read_text())
        entries = [Entry(**one) for one in table["entries"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: cannot be read, {error}, remove it", key="out") from error
    changed = [name for name, value in asked.items() if table.get(name) != value]
    if changed:
        raise ConfigError(f"{path}: was made with other {', '.join(changed)}, choose another folder", key="out")
    return entries


def _write(path: Path, table: Mapping[str, Any]) -> None:
    with private_files():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(table, indent=2, allow_nan=False) + "\n").encode())
