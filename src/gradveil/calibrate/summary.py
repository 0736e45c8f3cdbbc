"""A calibration as rows and sentences, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradveil.calibrate.outcome import Calibrated, CalibrationOutcome, Step

MARKS = (0.99, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)  # shares whose strengths are shown
KINDS = {
    "exact": "",
    "bound": "what the defense drew is granted to the guesser: no guesser without it names more",
    "estimated": "the likelihood is an estimate: a better guesser may name more",
}


def percent(share: float) -> str:
    """
    >>> percent(1.0), percent(0.0236), percent(0.0004)
    ('100 %', '2.4 %', '0.04 %')
    """
    points = 100 * share
    digits = 0 if points in (0, 100) else 1 if points >= 0.1 else 2
    return f"{points:.{digits}f} %"


def show_strength(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "as it is" if value is None else str(value)


def columns(found: Calibrated) -> tuple[str, ...]:
    return (found.option or "strength", "named", "95 % interval", "at most")


def rows(found: Calibrated) -> list[list[str]]:
    """A few strengths of the curve, and the one that is enough."""
    below = [next((step for step in found.curve if step.share <= mark), None) for mark in MARKS]
    shown = (found.curve[0], *below, found.enough, found.strongest)
    few = found.curve if found.way == "ladder" else [step for step in found.curve if step in shown]
    return [row(step) for step in few]


def row(step: Step) -> list[str]:
    low, high = step.interval
    return [show_strength(step.strength), percent(step.share), f"{percent(low)} to {percent(high)}",
            percent(step.at_most)]  # fmt: skip


def headline(found: Calibrated, defense: str) -> str:
    """The answer in one line."""
    if found.enough is not None and found.option:
        return f"{defense}: {found.option} {show_strength(found.enough.strength)} is enough"
    if found.enough is not None:
        return f"{defense} is enough as it is"
    if not found.option:
        return f"{defense} does not hide which picture it was"
    return f"No strength of {defense} hides which picture it was"


def sentences(outcome: CalibrationOutcome) -> Iterator[str]:
    """What was found, where the true value lies, and what the number is about."""
    found, name = outcome.found, str(outcome.settings["defense"]).partition(":")[0]
    yield f"{headline(found, name)}: {answer(found)}."
    if found.enough is not None and found.at_least is not None and found.option:
        yield (
            f"Where the least strength lies: {show_strength(found.at_least)} to "
            f"{show_strength(found.enough.strength)} (95 %), most likely {show_strength(found.likely)}."
        )
    if found.reached:
        yield f"Deploy: {found.text}"
    if found.certificate is not None:
        yield f"Certificate: {found.certificate}."
    if KINDS[found.kind]:
        yield f"Line-up: {KINDS[found.kind]}."


def answer(found: Calibrated) -> str:
    """How many are named, of how many, among how many."""
    step = found.enough or found.strongest
    to = "" if found.reached or not found.option else f" up to {found.option} {show_strength(step.strength)}"
    return (
        f"the update names {percent(step.share)} of {step.pictures:,} pictures{to}, at most {percent(step.at_most)} of "
        f"such pictures (95 %); limit {percent(found.limit)}, {found.candidates:,} candidates, random guessing "
        f"{percent(found.chance)}"
    )
