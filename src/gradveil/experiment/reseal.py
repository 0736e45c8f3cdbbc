"""A run that is sealed again after its seal was lost or broken says so in its provenance, where the page and
`gradveil verify` find it.

While a run is not sealed yet, an empty `seal.json.part` lies in its folder: a run that finished and has neither that
nor a seal has lost its seal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gradveil.experiment.seal import PART, SEAL, find_changes

SEALED_AGAIN = "sealed_again"  # key of provenance.json
NAMED = ("journal.jsonl", "config.toml", "provenance.json")  # other names can say whose pictures these are


def withdraw_seal(folder: Path) -> None:
    """Before the run goes on: what the seal says is about to change."""
    if os.path.lexists(folder / SEAL):
        os.replace(folder / SEAL, folder / (SEAL + PART))


def announce_seal(folder: Path) -> None:
    """The run is finished, its seal comes next: from here on it is not missing."""
    os.close(os.open(folder / (SEAL + PART), os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))


def find_broken_seal(folder: Path, provenance: Mapping[str, Any], derived: Iterable[str]) -> str:
    """What had become of the seal of a finished run; nothing if it holds, or if there never was one.

    `derived`: files that can be made again from the others, so that a change of theirs changes nothing.
    """
    if os.path.lexists(folder / SEAL):
        names = [line.partition(":")[0] for line in find_changes(folder)]
        return _describe([name for name in names if name not in set(derived) - {SEAL}])
    if (folder / (SEAL + PART)).exists():
        return ""
    if not provenance:
        return f"{SEAL} and provenance.json were missing"
    return f"{SEAL} was missing" if provenance.get("finished") else ""


def _describe(changed: list[str]) -> str:
    if not changed:
        return ""
    named = [name for name in changed if name in (*NAMED, SEAL)]
    more = [f"{len(changed) - len(named)} other files"] if len(changed) > len(named) else []
    return f"{', '.join(named + more)} had changed since the run was sealed"


def read_events(folder: Path, names: Iterable[str]) -> list[str]:
    """From every provenance among the files: when a broken or missing seal was replaced, by what, and why."""
    found = []
    for name in names:
        if name.rpartition("/")[2] == "provenance.json":
            found += [describe_event(event) for event in _events(folder / name)]
    return found


def describe_event(event: Mapping[str, Any]) -> str:
    return f"sealed again on {event.get('time')} by {event.get('by')}: {event.get('problem')}"


def _events(path: Path) -> list[Mapping[str, Any]]:
    stored = json.loads(path.read_bytes())
    found = stored.get(SEALED_AGAIN, []) if isinstance(stored, dict) else []
    return [event for event in found if isinstance(event, dict)] if isinstance(found, list) else []
