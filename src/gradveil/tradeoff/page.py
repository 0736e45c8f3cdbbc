"""The page of a study: the plot, the table, the comparison with noise, and how far to believe it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from gradveil.folder import private_files, write_whole
from gradveil.report.charts import Chart, Series
from gradveil.report.page import filled
from gradveil.report.tradeoff_chart import Mark, Shape, TradeoffChart
from gradveil.tradeoff.candidates import Role
from gradveil.tradeoff.estimates import Between
from gradveil.tradeoff.outcome import Outcome, Point
from gradveil.tradeoff.points import FLAGS
from gradveil.tradeoff.sheet import UNITS, between, columns, headline, row
from gradveil.verdict.estimate import leaks_upward

ROOM = 110  # letters of a legend
SHAPES: dict[Role, Shape] = {"none": "square", "noise": "diamond", "random": "triangle", "defense": "circle"}


def page(outcome: Outcome, path: str | Path) -> Path:
    """One file without scripts or network. Pictures are in the reports of the single points, not here."""
    content = {
        "outcome": outcome,
        "settings": outcome.settings,
        "headline": headline(outcome),
        "columns": columns(outcome),
        "rows": [(point, row(point, outcome.measure)) for point in outcome.points],
        "compared": [point for point in outcome.points if point.against],
        "failed": [point for point in outcome.points if point.failed],
        "flags": [(flag, FLAGS[flag]) for flag in outcome.flags],
        "under": next((point.leakage.under for point in outcome.points if point.leakage), ""),
        "positive": next((point.leakage.positive for point in outcome.points if point.leakage), ""),
        "between": between,
        # texts in a plot are escaped where it is drawn
        "plot": Markup(plot(outcome, outcome.measure).svg()),
        "others": [Markup(chart.svg()) for chart in charts(outcome)],
    }
    with private_files():
        write_whole(Path(path), filled("tradeoff.html.j2", content).encode())
    return Path(path)


def charts(outcome: Outcome) -> Iterator[TradeoffChart | Chart]:
    if outcome.measure != "leaked":
        yield plot(outcome, "leaked")
    curves = [point for point in outcome.points if len(point.curve) > 1]
    if curves:
        yield Chart(title="Accuracy", x="round, mean of the trainings", y="accuracy", height=460, width=960,
                    series=_curves(curves))  # fmt: skip


def _curves(points: Sequence[Point]) -> list[Series]:
    """As many as their names have room for; noise and random policies would only crowd it."""
    series: list[Series] = []
    for point in (one for one in points if one.candidate.role in ("none", "defense")):
        if sum(len(one.name) + 4 for one in series) + len(point.label) < ROOM:
            series.append(Series(name=point.label, kind="line", points=list(point.curve.items())))
    return series


def plot(outcome: Outcome, measure: str) -> TradeoffChart:
    noise = [point for point in outcome.points if point.candidate.role in ("none", "noise")]
    return TradeoffChart(
        title="Accuracy against leakage",
        x=f"{UNITS[measure]}, worst attack and stage for each picture: less leaks to the right",
        marks=[mark(point, measure) for point in outcome.points if point.measured],
        upward=leaks_upward(measure),
        noise=[point.label for point in sorted(noise, key=lambda one: one.candidate.scale)],
    )


def mark(point: Point, measure: str) -> Mark:
    assert point.accuracy is not None
    assert point.leakage is not None
    value = point.leakage.measures[measure]
    told = f"{between(value, 2)}, accuracy {between(point.accuracy, 1, 100)} %, {point.verdict}"
    return Mark(
        label=point.label,
        group=point.candidate.choice.name,
        shape=SHAPES[point.candidate.role],
        leakage=value.mean,
        accuracy=point.accuracy.mean,
        across=_ends(value),
        up=_ends(point.accuracy),
        believed=point.believed,
        ahead=point.on_front,
        said=f"{point.label}: {told}",
    )


def _ends(value: Between) -> tuple[float, float] | None:
    return None if value.low is None or value.high is None else (value.low, value.high)
