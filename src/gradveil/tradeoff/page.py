"""The page of a study: the plot, the table, the comparison with noise, and how far to believe it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from gradveil.core.files import private_files, write_whole
from gradveil.report.charts import Chart, Series
from gradveil.report.page import render_template
from gradveil.report.tradeoff_chart import Mark, Shape, TradeoffChart
from gradveil.tradeoff.defenses import Role
from gradveil.tradeoff.estimates import Between
from gradveil.tradeoff.leakage import measure_facts
from gradveil.tradeoff.outcome import Point, StudyOutcome
from gradveil.tradeoff.points import FLAGS
from gradveil.tradeoff.settings import LEAKED
from gradveil.tradeoff.summary import between, columns, headline, row

ROOM = 110  # letters of a legend
NARROW = 440
SHAPES: dict[Role, Shape] = {"none": "square", "noise": "diamond", "random": "triangle", "defense": "circle"}


def write_study_page(outcome: StudyOutcome, path: str | Path) -> Path:
    """One file without scripts or network. Pictures are in the reports of the single points, not here."""
    content = {
        "outcome": outcome,
        "settings": outcome.settings,
        "described": {name.replace("_", " "): describe(value) for name, value in outcome.settings.items()},
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
        "narrow": Markup(narrow(plot(outcome, outcome.measure)).svg()),
        "others": [Markup(chart.svg()) for chart in charts(outcome)],
    }
    with private_files():
        write_whole(Path(path), render_template("tradeoff.html.j2", content).encode())
    return Path(path)


def describe(value: Any) -> str:
    """A setting for readers: lists without brackets, and a dash for what was not given.

    >>> describe(("a", "b")), describe({"size": 16}), describe(()), describe(0)
    ('a, b', 'size=16', '-', '0')
    """
    if isinstance(value, Mapping):
        value = [f"{key}={one}" for key, one in value.items()]
    return (", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)) or "-"


def charts(outcome: StudyOutcome) -> Iterator[TradeoffChart | Chart]:
    if outcome.measure != LEAKED:
        yield replace(plot(outcome, LEAKED), title="Accuracy against the share of pictures that leaked")
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


def plot(outcome: StudyOutcome, measure: str) -> TradeoffChart:
    noise = [point for point in outcome.points if point.candidate.role in ("none", "noise")]
    points = [point for point in outcome.points if point.measured]
    shown = f"{measure_facts(measure).heading}{above(points, measure)}"
    return TradeoffChart(
        title="Accuracy against leakage",
        x=f"{shown}, worst attack and stage for each picture: less leaks to the right",
        marks=[mark(point, measure) for point in points],
        upward=measure_facts(measure).more_is_leakier,
        noise=[point.label for point in sorted(noise, key=lambda one: one.candidate.scale)],
    )


def highest(measure: str) -> float:
    """Where a plot ends: a closed form's 150 dB would press all others together."""
    exact = measure_facts(measure).exact
    return math.inf if exact is None else exact


def above(points: Sequence[Point], measure: str) -> str:
    """What the axis says where a point lies beyond its end."""
    most = highest(measure)
    beyond = any(one.leakage is not None and one.leakage.measures[measure].mean > most for one in points)
    return f" ({most:g} and above at {most:g})" if beyond else ""


def narrow(chart: TradeoffChart) -> TradeoffChart:
    """The same for a telephone: upright, and noise has no label; the dashed line and the table tell who is who."""
    noise = [mark.label for mark in chart.marks if mark.shape == "diamond"]
    measure = chart.x.partition(", worst")[0]
    return replace(chart, width=NARROW, height=620, unnamed=noise, x=f"{measure}: less leaks to the right")


def mark(point: Point, measure: str) -> Mark:
    assert point.accuracy is not None
    assert point.leakage is not None
    value = point.leakage.measures[measure]
    most = highest(measure)
    text = f"{between(value, 2)}, accuracy {between(point.accuracy, 1, 100)} %, {point.verdict}"
    return Mark(
        label=point.label,
        group=point.candidate.choice.name,
        shape=SHAPES[point.candidate.role],
        leakage=min(value.mean, most),
        accuracy=point.accuracy.mean,
        across=_ends(value, most),
        up=_ends(point.accuracy),
        believed=point.believed,
        ahead=point.on_front,
        tooltip=f"{point.label}: {text}",
    )


def _ends(value: Between, most: float = math.inf) -> tuple[float, float] | None:
    return None if value.low is None or value.high is None else (min(value.low, most), min(value.high, most))
