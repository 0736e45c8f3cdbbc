"""The page of a recommendation: the answer, the line to deploy it, every defense beside it."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from gradveil.calibrate.family import write_table
from gradveil.core.files import private_files, write_whole
from gradveil.recommend.outcome import Advice, Advised
from gradveil.recommend.summary import COLUMNS, headline, rows
from gradveil.report.page import render_template
from gradveil.report.tradeoff_chart import Mark, TradeoffChart
from gradveil.tradeoff.page import describe


def write_advice_page(advice: Advice, path: str | Path) -> Path:
    """One file without scripts or network, and without pictures."""
    best = advice.best
    choice = best.found.choice if best is not None and best.found is not None else None
    content = {
        "advice": advice,
        "settings": advice.settings,
        "described": {name.replace("_", " "): describe(value) for name, value in advice.settings.items()},
        "headline": headline(advice),
        "columns": COLUMNS,
        "rows": rows(advice),
        "attacked": {
            one.label: one.name for one in advice.advised if one.point is not None and one.point.leakage is not None
        },
        "table": write_table(choice) if choice else "",
        "plot": Markup(plot(advice).svg()),
        "left_out": [(one.label, one.reason.rstrip(".")) for one in advice.advised if one.reason],
    }
    with private_files():
        write_whole(Path(path), render_template("recommend.html.j2", content).encode())
    return Path(path)


def plot(advice: Advice) -> TradeoffChart:
    """Accuracy against what the line-up names at most, of every defense that was trained."""
    trained = [one for one in advice.advised if one.point is not None and one.point.accuracy is not None]
    return TradeoffChart(
        title="Accuracy of the defenses that reach the limit",
        x="pictures that the update names at most, %",
        marks=[_mark(one, advice.winner) for one in trained],
        upward=True,
        noise=[],
    )


def _mark(one: Advised, winner: str) -> Mark:
    assert one.point is not None
    assert one.point.accuracy is not None
    assert one.found is not None
    step, accuracy = one.found.enough or one.found.strongest, one.point.accuracy
    ends = None if accuracy.low is None or accuracy.high is None else (accuracy.low, accuracy.high)
    return Mark(
        label=one.label,
        group=one.family.choice.name,
        shape="circle",
        leakage=100 * step.at_most,
        accuracy=accuracy.mean,
        up=ends,
        believed=True,
        ahead=one.label == winner,
        tooltip=f"{one.label}: accuracy {100 * accuracy.mean:.1f} %",
    )
