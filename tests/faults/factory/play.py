"""One base, with or without a fault: run it, judge it, and say what became of it."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import factory.bases
import factory.control_faults
import factory.data_faults
import factory.engine_faults
import factory.lineup_faults
import factory.metric_faults
import factory.partial_faults
import factory.surrogate_faults
import factory.update_faults  # noqa: F401  (each adds to the catalogue)
from factory.base import BASES, Base, read_digits_once
from factory.fault import CATALOGUE, Fault
from factory.patch import open_patch
from factory.record_faults import Folder
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import Run, read_run
from gradveil.audit.verdict import judge
from gradveil.core import toml
from gradveil.core.errors import GradveilError
from gradveil.experiment.journal import encode

REFUSED, CRASHED = "refused", "crashed"
RESULTS = ("leaks", "inconclusive", "not evaluated", "no leak found", "bounded", REFUSED, CRASHED)
REASSURING = ("no leak found", "bounded")


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was played and what came out: one of `RESULTS`, with the reasons of every finding."""

    kind: str  # of the fault; "" for a healthy base
    seed: int
    base: str
    result: str
    why: str = ""
    seconds: float = 0.0

    @property
    def is_false(self) -> bool:
        """Whether a fault reads as protection, or a healthy base does not get its true word."""
        if self.kind:
            return self.result in (*REASSURING, CRASHED)
        truth = BASES[self.base].truth
        return self.result not in (REASSURING if truth == "no leak found" else (truth,))


def play(kind: str, seed: int, base_seed: int, shared: Path, among: Sequence[str] = ()) -> Result:
    """A `kind` of fault, on a base that it draws (`among` some), or `base:NAME` without one. `shared`: healthy runs."""
    healthy = kind.startswith("base:")
    base = BASES[kind.removeprefix("base:")] if healthy else CATALOGUE[kind].draw_base(seed, among)
    fault = None if healthy else CATALOGUE[kind]
    name = "" if healthy else kind
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda handle: None)  # no fault here is a power cut
            read_digits_once(patch)
            word, why = _word(base, fault, seed, base_seed, shared)
    except GradveilError as error:
        word, why = REFUSED, str(error)
    except Exception:
        word, why = CRASHED, traceback.format_exc(limit=-4)
    return Result(kind=name, seed=seed, base=base.name, result=word, why=why)


def _word(base: Base, fault: Fault | None, seed: int, base_seed: int, shared: Path) -> tuple[str, str]:
    if fault is None or fault.when == "records":
        folder = shared / f"{base.name}-{base_seed}"
        if not folder.exists():
            run_whole(base, base_seed, folder)
        return find_word(read_run(folder) if fault is None else change_records(folder, fault, seed))
    with tempfile.TemporaryDirectory() as scratch:
        return run_with(base, fault, seed, base_seed, Path(scratch) / "run")


def run_whole(base: Base, seed: int, folder: Path) -> None:
    """A healthy run; it appears in its place when it is complete, since several processes look for it."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        run_audit(base.audit(base.draw(seed), seed), Path(scratch) / "run")
        try:
            (Path(scratch) / "run").rename(folder)
        except OSError:
            if not folder.exists():
                raise


def run_with(base: Base, fault: Fault, seed: int, base_seed: int, folder: Path) -> tuple[str, str]:
    rng, tables = fault.rng(seed), copy.deepcopy(base.draw(base_seed))
    rng.random()  # the first number has drawn the base
    if fault.when == "settings":
        fault.inject(tables, rng)
    audit: Audit = base.audit(tables, base_seed)
    if fault.when == "audit":
        audit = fault.inject(audit, rng)
    with open_patch(fault.inject if fault.when == "run" else None, rng):
        run_audit(audit, folder)
    return find_word(read_run(folder))


def change_records(folder: Path, fault: Fault, seed: int) -> Run:
    """The stored run after the fault, read back as any run is."""
    run = read_run(folder)
    changed = Folder(list(run.records), dict(run.provenance), copy.deepcopy(dict(run.config)))
    fault.inject(changed, fault.rng(seed))
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "journal.jsonl").write_bytes(b"".join(map(encode, changed.records)))
        (Path(scratch) / "provenance.json").write_text(json.dumps(changed.provenance))
        (Path(scratch) / "config.toml").write_text(toml.dump(changed.config))
        return read_run(Path(scratch))


def find_word(run: Run) -> tuple[str, str]:
    """The word, and the findings; a reassuring one decides, whatever the others say."""
    verdict = judge(run)
    words = [finding.verdict for finding in verdict.findings]
    why = "; ".join(f"{f.tally.defense}: {f.verdict}: {' '.join(f.reasons)}" for f in verdict.findings)
    reassuring = next((word for word in words if word in REASSURING), verdict.word)
    return reassuring, why
