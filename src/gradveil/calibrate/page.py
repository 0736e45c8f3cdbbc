"""The page of a calibration: the curve, the answer, and what it is about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from gradveil.calibrate.outcome import Calibrated, CalibrationOutcome, Step
from gradveil.calibrate.summary import answer, columns, headline, rows, sentences, show_strength
from gradveil.core.files import private_files, write_whole
from gradveil.report.charts import Chart, Series
from gradveil.report.page import render_template


def write_calibration_page(outcome: CalibrationOutcome, path: str | Path) -> Path:
    """One file without scripts or network, and without pictures."""
    name = str(outcome.settings["defense"]).partition(":")[0]
    content = {
        "found": outcome.found,
        "settings": outcome.settings,
        "provenance": outcome.provenance,
        "headline": headline(outcome.found, name),
        "answer": answer(outcome.found),
        "sentences": list(sentences(outcome))[1:],
        "columns": columns(outcome.found),
        "rows": rows(outcome.found),
        "plot": Markup(plot(outcome.found).svg()),
    }
    with private_files():
        write_whole(Path(path), render_template("calibrate.html.j2", content).encode())
    return Path(path)


def plot(found: Calibrated) -> Chart:
    """Shares by strength, in per cent; on a scale of powers of ten where the strengths are such."""
    places = _places(found.curve, found.way == "one pass")
    shares = [100 * step.share for step in found.curve]
    bounds = [100 * step.at_most for step in found.curve]
    kind = "line" if len(places) > 1 else "dots"
    return Chart(
        title="Pictures that the update names among the candidates",
        x=found.option or "the defense as it is",
        y="named, %",
        width=960,
        height=420,
        series=[
            Series(name="named", kind=kind, points=list(zip(places, shares, strict=True))),
            Series(name="at most (95 %)", kind=kind, points=list(zip(places, bounds, strict=True))),
        ],
        horizontals=(100 * found.limit,),
        labels=_labels(found.curve, places, found.way == "one pass"),
    )


def _places(curve: Sequence[Step], powers: bool) -> list[float]:
    return [math.log10(step.strength) if powers else float(number) for number, step in enumerate(curve)]


def _labels(curve: Sequence[Step], places: Sequence[float], powers: bool) -> dict[float, str]:
    if not powers:
        return {place: show_strength(step.strength) for place, step in zip(places, curve, strict=True)}
    return {float(power): f"{10.0**power:g}" for power in range(math.ceil(places[0]), math.floor(places[-1]) + 1)}
