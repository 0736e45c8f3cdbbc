"""A study as rows and sentences, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.audit.verdict.leak import CLOSENESS
from gradveil.tradeoff.estimates import Between
from gradveil.tradeoff.leakage import measure_facts
from gradveil.tradeoff.outcome import Point, StudyOutcome
from gradveil.tradeoff.points import FLAGS

ON_FRONT, NOTHING, BLANK = "front", "-", "blank, dB"


def columns(outcome: StudyOutcome) -> tuple[str, ...]:
    leakage = (measure_facts(outcome.measure).heading, *((BLANK,) if shows_blank(outcome.measure) else ()))
    return ("defense", "accuracy, %", "cost, points", "leaked", "identified", *leakage, "verdict", "beside noise", "")


def shows_blank(measure: str) -> bool:
    """Whether the mean public picture stands beside it."""
    return measure == CLOSENESS.name


def rows(outcome: StudyOutcome) -> list[list[str]]:
    return [row(point, outcome.measure) for point in outcome.points]


def row(point: Point, measure: str) -> list[str]:
    seen = None if point.failed else point.leakage  # what a failed point seems to leak is no number
    value = seen.measures.get(measure) if seen else None
    return [
        point.label,
        between(point.accuracy, 1, 100),
        between(point.cost, 1, 100),
        f"{seen.leaked} of {seen.pictures}" if seen else NOTHING,
        f"{seen.identified} of {seen.pictures}" if seen else NOTHING,
        between(value, measure_facts(measure).digits),
        *([between(seen.blank if seen else None, CLOSENESS.digits)] if shows_blank(measure) else []),
        verdict_of(point),
        beside(point),
        ON_FRONT if point.on_front else "",
    ]


def verdict_of(point: Point) -> str:
    """Our words; what failed or is missing says so."""
    if point.failed:
        return "failed"
    if point.missing:
        return f"{point.verdict} (missing: {point.missing})"
    return point.verdict if point.leakage is None or point.leakage.adaptive else f"{point.verdict} (no adaptive attack)"


def beside(point: Point) -> str:
    return f"{point.against.standing} ({point.against.noise})" if point.against else NOTHING


def between(value: Between | None, digits: int, times: float = 1.0) -> str:
    """`71.2 (65.0 to 77.4)`"""
    if value is None:
        return NOTHING
    center = f"{times * value.mean:.{digits}f}"
    if value.low is None or value.high is None:
        return center
    return f"{center} ({times * value.low:.{digits}f} to {times * value.high:.{digits}f})"


def headline(outcome: StudyOutcome) -> str:
    """How many defenses are worth more than noise."""
    beside = [p.against for p in outcome.points if p.against is not None and p.candidate.role == "defense"]
    compared = [one for one in beside if one.standing != "no such noise"]
    better = sum(one.standing == "leaks less" for one in compared)
    if not compared:
        return "No defense has noise of the same accuracy beside it yet"
    return f"{better} of {len(compared)} defenses leak less than noise at the same accuracy"


def sentences(outcome: StudyOutcome) -> Iterator[str]:
    yield f"{headline(outcome)}."
    if outcome.front:
        yield f"On the front, from little leakage to much: {', '.join(outcome.front)}."
    for point in outcome.points:
        if point.against and point.candidate.role == "defense":
            yield f"{point.label}: {point.against.conclusion}."
    for point in outcome.points:
        if point.failed:
            yield f"{point.label} failed, and has no place on the plot: {point.failed}."
        for note in point.notes:
            yield f"{point.label}: {note}."
    for flag in outcome.flags:
        yield f"{flag}: {FLAGS[flag]}."
