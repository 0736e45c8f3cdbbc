"""report.html: one self-contained page, a pure function of a run's folder."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradveil.audit.flags import FLAGS
from gradveil.audit.ladder import base_of
from gradveil.audit.results import Run, read_run
from gradveil.audit.verdict import Verdict, judge
from gradveil.audit.verdict.bound_words import WHO
from gradveil.audit.verdict.conditions import describe_share
from gradveil.audit.verdict.estimate import CellResult
from gradveil.audit.verdict.leak import MARGIN
from gradveil.audit.verdict.tally import Tally
from gradveil.core.files import private_files, write_whole
from gradveil.core.hashes import sha256
from gradveil.experiment.record import Record
from gradveil.report.agreement import NAMED, Agreement, agreement
from gradveil.report.assumptions import describe_attacker, list_assumptions
from gradveil.report.blocks import Block, blocks, control_cells
from gradveil.report.captured import captured_rows
from gradveil.report.claim import examine_claim
from gradveil.report.corridor import TICKS, describe_epsilon, draw_corridors, group_links, name_link, place
from gradveil.report.decision import advise, state_result
from gradveil.report.figures import Axis, Strip, axis_of, strip
from gradveil.report.not_tested import date_of, expiry_of, list_not_tested
from gradveil.report.page import render_template
from gradveil.report.pictures import find_worst, prior_only, tabulate_pictures
from gradveil.report.redact import redact_run
from gradveil.report.scores import leakage, score_columns

SHOWN_ELSEWHERE = ("scenarios", "declared", "update_bytes", "privacy", "capture", "metrics", "certificates")


def write_report(folder: Path, redact: bool = False, claim: float | None = None) -> Path:
    """Write `report.html` into a run's folder: whole or not at all, for its owner alone.

    `redact` leaves out pictures, names and paths. `claim`: say whether "at most this share leaks" is supported.
    """
    run, path = read_run(Path(folder)), Path(folder) / "report.html"
    page = render(redact_run(run) if redact else run, claim)
    with private_files():
        write_whole(path, page.encode("utf-8", "replace"))
    return path


def render(run: Run, claim: float | None = None) -> str:
    """The page."""
    verdict = judge(run)
    found = blocks(run, verdict)
    cells = [cell for block in found for scene in block.scenes for cell in scene.cells]
    axis = axis_of(cells, verdict.baselines)
    content = {
        "run": run,
        "verdict": verdict,
        "blocks": found,
        "canaries": [scene for block in found for scene in block.canaries],
        "cells": cells,
        "axis": axis,
        "strips": _strips(found, axis, verdict),
        "page": score_columns({name for cell in cells for name in cell.metrics}, run),
        "agreements": _agreements(run, found, verdict),
        "most_named": NAMED,
        "margin": MARGIN,
        "result": state_result(run, verdict),
        "advice": advise(verdict),
        "reasons": _reasons(verdict),
        "claim": None if claim is None else examine_claim(verdict, claim),
        "failures": _failures(cells),
        "efforts": _efforts(run, cells),
        "controls": control_cells(run, verdict),
        "flags": list(_flags(verdict, cells)),
        "flag_titles": {name: flag.title for name, flag in FLAGS.items()},
        "not_tested": list_not_tested(run, verdict),
        "captured": list(captured_rows(run)),
        "corridors": (corridors := draw_corridors(verdict)),
        "links": group_links(corridors),
        "who_links": WHO,
        "ticks": TICKS,
        "place": place,
        "epsilon_of": describe_epsilon,
        "name_link": name_link,
    }
    content |= _pictures(run, found, verdict) | _assumptions(run, verdict) | _origin(run, cells)
    return render_template("report.html.j2", content)


def _reasons(verdict: Verdict) -> list[tuple[list[Tally], str]]:
    """Why the run has its word; what was found alike is said once."""
    groups: dict[str, list[Tally]] = {}
    for finding in verdict.judged:
        if finding.verdict == verdict.word:
            groups.setdefault(" ".join(finding.reasons), []).append(finding.tally)
    return [(tallies, reason) for reason, tallies in groups.items()]


def _efforts(run: Run, cells: Sequence[CellResult]) -> dict[str, str | None]:
    choices = run.choices("attack")
    return {cell.attack: describe_share(cell.attack, choices.get(base_of(cell.attack))) for cell in cells}


def _strips(found: Sequence[Block], axis: Axis | None, verdict: Verdict) -> Mapping[str, list[Strip]]:
    """By scenario."""
    if axis is None:
        return {}
    scenes = [scene for block in found for scene in block.scenes]
    return {scene.name: [strip(cell, axis, verdict.baselines) for cell in scene.cells] for scene in scenes}


def _agreements(run: Run, found: Sequence[Block], verdict: Verdict) -> dict[str, Agreement]:
    """By scenario, where there is more than one metric."""
    scenes = [scene for block in found for scene in block.scenes]
    compared = {scene.name: agreement(scene.cells, verdict.baselines, run.facts) for scene in scenes}
    return {name: one for name, one in compared.items() if one is not None}


def _pictures(run: Run, found: Sequence[Block], verdict: Verdict) -> dict[str, Any]:
    """The worst picture, and a table by scenario."""
    without, baselines = prior_only(run), verdict.baselines
    scenes = [scene for block in found for scene in block.scenes]
    tables = {scene.name: tabulate_pictures(run, scene.cells, without, baselines) for scene in scenes}
    worst = find_worst(run, [finding.tally for finding in verdict.judged], baselines)
    return {"tables": tables, "worst": worst, "has_pictures": any(table.rows for table in tables.values())}


def _assumptions(run: Run, verdict: Verdict) -> dict[str, Any]:
    return {"attacker": describe_attacker(run), "ledger": list_assumptions(run, verdict), "settings": _settings(run)}


def _origin(run: Run, cells: Sequence[CellResult]) -> dict[str, Any]:
    """Where the run comes from and how to check it."""
    own = {key: value for key, value in run.provenance.items() if key not in SHOWN_ELSEWHERE}
    return {
        "provenance": list(_flat(own | _journal_hash(run) | _back_ends(cells))),
        "again": _again(run, cells),
        "date": date_of(run),
        "expires": expiry_of(run),
    }


def _back_ends(cells: Sequence[CellResult]) -> dict[str, dict[str, str]]:
    """What each attack ran on."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        found.setdefault(cell.attack, set()).update(record.backend for record in cell.records if record.backend)
    return {"back_end": {attack: ", ".join(sorted(names)) for attack, names in found.items() if names}}


def _journal_hash(run: Run) -> dict[str, str]:
    path = run.folder / "journal.jsonl"
    return {"journal_sha256": sha256(path.read_bytes())} if path.is_file() else {}


def _again(run: Run, cells: Sequence[CellResult]) -> dict[str, str]:
    """For the commands that check the folder and compute the most leaked trial again."""
    scored = [record for cell in cells for record in cell.records if record.status == "ok" and record.key]
    trial = max(scored, key=lambda record: leakage(record, run.facts)).key if scored else "KEY"
    return {"folder": "RUN" if run.redacted else shlex.quote(run.name), "trial": shlex.quote(trial)}


def _failures(cells: Sequence[CellResult]) -> list[tuple[CellResult, str, list[Record]]]:
    """Failed trials by cell and reason."""
    groups: dict[tuple[int, str], list[Record]] = {}
    for number, cell in enumerate(cells):
        for record in cell.records:
            if record.status == "failed":
                groups.setdefault((number, record.reason), []).append(record)
    return [(cells[number], reason, records) for (number, reason), records in groups.items()]


def _flags(verdict: Verdict, cells: Sequence[CellResult]) -> Iterator[tuple[str, Any, int]]:
    """Name, text (None if this version knows none) and number of trials of each flag; 0: of the run as a whole."""
    yield from ((name, FLAGS.get(name), 0) for name in verdict.flags)
    for name in sorted({name for cell in cells for name in cell.flags} - set(verdict.flags)):
        yield name, FLAGS.get(name), sum(cell.flags[name] for cell in cells)


def _settings(run: Run) -> list[tuple[str, str, str]]:
    """Kind, label and options of every configured defense and attack."""
    rows = []
    for kind in ("defense", "attack"):
        for label, choice in run.choices(kind).items():
            options = ", ".join(f"{key} = {value}" for key, value in _flat(choice) if (key, value) != ("name", label))
            rows.append((kind, str(label), options or "no options"))
    return rows


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys."""
    if isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        value = dict(enumerate(value, 1))
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        yield key, ", ".join(map(str, value))
    else:
        yield key, "not recorded" if value is None else str(value)
