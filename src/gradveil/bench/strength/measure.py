"""One setting: its file if it is there, else every attack on it. Nothing here needs the command line or the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from gradveil.bench.strength.cases import Case, check_kinds
from gradveil.bench.strength.contest import Entry, judge_blank, run_contest
from gradveil.bench.strength.settings import Extent, Setting, list_settings
from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files, write_whole
from gradveil.core.hashes import hash_tensors
from gradveil.core.seeds import Seed


@dataclass(frozen=True, kw_only=True)
class Strength:
    """What is compared. `pictures`: by kind, where its pictures lie. `only`: patterns of names of settings."""

    extent: Extent = "quick"
    pictures: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[str] = ()
    steps: int | None = None
    seed: int = 0

    def steps_of(self, setting: Setting) -> int:
        """Of `autoattack`."""
        return self.steps or setting.search_steps(self.extent)

    def settings(self) -> list[Setting]:
        check_kinds(self.pictures)
        found = list_settings(self.extent, self.pictures)
        chosen = [one for one in found if not self.only or any(fnmatchcase(one.name, text) for text in self.only)]
        if not chosen:
            names = ", ".join(one.name for one in found)
            raise ConfigError(f"no setting has such a name, take some of {names}", key="only")
        return chosen


def read_or_run(strength: Strength, case: Case, path: Path) -> list[Entry]:
    """What is in the file of the setting stays; the other attacks are run and written to it one by one."""
    steps = strength.steps_of(case.setting)
    asked = {
        "steps": steps,
        "seed": strength.seed,
        "update": hash_tensors({**case.seen.update, "pictures": case.truth.private.images}),
    }
    found = _read(path, asked) if path.exists() else []
    if is_complete(path):
        return found
    known = {**asked, "torch": torch.__version__, "blank": judge_blank(case).to_json(), "gallery": len(case.gallery)}
    stream, entries = Seed(strength.seed).at("attack", case.setting.name), list[Entry]()
    for entry in run_contest(case, steps, stream, done=found):
        entries.append(entry)
        if len(entries) > len(found):
            write_json(path, _table(known, entries, complete=False))
    write_json(path, _table(known, entries, complete=True))
    return entries


def is_complete(path: Path) -> bool:
    """Whether every attack on the setting is in its file."""
    try:
        return bool(json.loads(path.read_text()).get("complete", True))
    except (OSError, ValueError, AttributeError):
        return False


def read_setting(path: Path) -> tuple[list[Entry], Entry, int]:
    """The entries in a setting's file, that of a blank picture, and among how many pictures each is sought."""
    try:
        table = json.loads(path.read_text())
        return [Entry(**one) for one in table["entries"]], Entry(**table["blank"]), table["gallery"] + 1
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: cannot be read, {error}, remove it", key="out") from error


def _table(known: Mapping[str, Any], entries: Sequence[Entry], *, complete: bool) -> dict[str, Any]:
    return {**known, "complete": complete, "entries": [entry.to_json() for entry in entries]}


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


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    with private_files():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(table, indent=2, allow_nan=False) + "\n").encode())
