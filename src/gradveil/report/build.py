"""report.html: one self-contained page, a pure function of a run's folder."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from gradveil.flags import FLAGS
from gradveil.record import Record
from gradveil.report.cells import Cell, cells, summaries
from gradveil.report.figures import looks_same, png_uri, strip_plot
from gradveil.report.redact import redacted
from gradveil.report.run import Run, read_run
from gradveil.report.scope import assumptions, not_tested

TEMPLATES = Path(__file__).parent / "templates"
SHOWN = 13  # pictures per cell: one large and rows of twelve; all of them are in the plot and in the journal
# what a browser must not be handed inside a name: controls, direction overrides, halves of letters
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """One picture of the gallery; `fed` is empty where it looks like the original."""

    record: Record
    original: str
    fed: str
    reconstructed: str


def write_report(folder: Path, redact: bool = False) -> Path:
    """Write `report.html` into a run's folder. `redact` leaves out pictures, client names and class names."""
    run = read_run(Path(folder))
    page = render(redacted(run) if redact else run)
    return _replace(Path(folder) / "report.html", page)


def render(run: Run) -> str:
    """The page."""
    found = cells(run)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            summaries=summaries(run),
            cells=found,
            plot=strip_plot(found),
            galleries=[(cell, _exhibits(run, cell)) for cell in found],
            scores={name for record in run.records for name in record.scores},
            fed_differs=any("psnr_fed" in (s := r.scores) and s["psnr_fed"] != s.get("psnr") for r in run.records),
            failures=_failures(found),
            failed=sum(len(cell.failed) for cell in found),
            scenarios={cell.scenario for cell in found},
            assumptions=assumptions(run),
            settings=_settings(run),
            not_tested=not_tested(run),
            flags=_flags(found),
            provenance=list(_flat(run.provenance)),
            date=str(run.provenance.get("finished") or run.provenance.get("started") or ""),
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters["code"] = _code
    return environment


def _printable(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return UNPRINTABLE.sub("\ufffd", value)
    return value


def _code(text: str) -> Markup:
    """`Words` between backticks as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )


def _exhibits(run: Run, cell: Cell) -> list[Exhibit]:
    """The most leaked pictures of a cell."""
    found: list[Exhibit] = []
    for record in cell.scored[:SHOWN]:
        if (pictures := run.pictures(record)) is not None:
            fed = "" if looks_same(pictures.original, pictures.fed) else png_uri(pictures.fed)
            original, reconstructed = png_uri(pictures.original), png_uri(pictures.reconstructed)
            found.append(Exhibit(record=record, original=original, fed=fed, reconstructed=reconstructed))
    return found


def _failures(found: Sequence[Cell]) -> list[tuple[Cell, str, list[Record]]]:
    """Failed trials by cell and reason."""
    groups: list[tuple[Cell, str, list[Record]]] = []
    for cell in found:
        for reason in dict.fromkeys(record.reason for record in cell.failed):
            groups.append((cell, reason, [r for r in cell.failed if r.reason == reason]))
    return groups


def _flags(found: Sequence[Cell]) -> list[tuple[str, Any, int]]:
    """Name, text (None if this version knows none) and number of trials of each flag that was raised."""
    names = sorted({name for cell in found for name in cell.flags})
    return [(name, FLAGS.get(name), sum(cell.flags[name] for cell in found)) for name in names]


def _settings(run: Run) -> list[tuple[str, str, str]]:
    """Kind, label and options of every configured defense and attack."""
    rows = []
    for kind in ("defense", "attack"):
        for label, choice in run.choices(kind).items():
            options = ", ".join(f"{key} = {value}" for key, value in _flat(choice) if (key, value) != ("name", label))
            rows.append((kind, str(label), options or "defaults"))
    return rows


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        yield key, ", ".join(map(str, value))
    else:
        yield key, "not recorded" if value is None else str(value)


def _replace(path: Path, page: str) -> Path:
    """Whole or not at all: written beside the old file, readable by its owner only, then renamed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".report-", suffix=".html")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(page.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
