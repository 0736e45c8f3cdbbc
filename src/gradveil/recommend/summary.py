"""A recommendation as three sentences and a table, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradveil.calibrate.outcome import Step
from gradveil.calibrate.summary import percent, show_strength
from gradveil.recommend.outcome import Advice, Advised
from gradveil.tradeoff.outcome import Point
from gradveil.tradeoff.summary import NOTHING, between

COLUMNS = ("defense", "strength", "line-up", "after training", "accuracy, %", "cost, points", "attacks", "")
SHOWN = 3  # names in a sentence
NEARLY_ALL = 0.995


def headline(advice: Advice) -> str:
    if advice.best is None:
        return f"Nothing reaches {percent(advice.limit)} within {points_text(advice)} of accuracy"
    return f"Deploy {advice.deploy}"


def left_out(advice: Advice) -> Iterator[str]:
    """What could not be calibrated, and why."""
    for one in advice.advised:
        if one.reason:
            yield f"not applicable: {one.reason}"


def answer(advice: Advice) -> Iterator[str]:
    """What to deploy, what it costs, and what attack and line-up say."""
    best = advice.best
    if best is None:
        yield from _without(advice)
        return
    assert best.found is not None
    assert best.found.enough is not None
    yield f"Deploy {advice.deploy}."
    yield f"It costs {_cost(best.point)}{_untaught(advice)}."
    yield f"{_attacks(best)}; {_lineup(best)}; {_certificate(best)}."


def _untaught(advice: Advice) -> str:
    """Where there was nothing to lose."""
    if advice.has_learned:
        return ""
    return (
        f"; this says nothing, since without a defense the model learned nothing either (always naming one class: "
        f"{percent(advice.guessing)}): train longer"
    )


def _without(advice: Advice) -> Iterator[str]:
    """What came nearest, and what hides nothing."""
    yield f"Nothing reaches {percent(advice.limit)} within the {points_text(advice)} of accuracy that you can spare."
    reached = [one for one in advice.advised if one.reached]
    if not reached:
        yield "No defense reaches it at any strength."
    known = sorted((one for one in reached if one.cost is not None), key=lambda one: one.cost or 0.0)
    if known:
        yield f"{known[0].label} costs least of those that reach it: {_cost(known[0].point)}."
    leaving = [one.label for one in reached if (w := one.worst_after) is not None and w.at_most > advice.limit]
    if leaving:
        yield f"Enough before training, but not after it: {_names(leaving)}."
    if open_ := [one.label for one in advice.advised if one.found is not None and not one.reached]:
        yield f"At no strength do these hide which picture it was: {_names(open_, len(open_))}."


def points_text(advice: Advice) -> str:
    return f"{float(advice.settings['spare']):g} points"


def _names(labels: Sequence[str], shown: int = SHOWN) -> str:
    more = f" and {len(labels) - shown} more" if len(labels) > shown else ""
    return ", ".join(labels[:shown]) + more


def _cost(point: Point | None) -> str:
    if point is None or point.cost is None or point.accuracy is None:
        return "an unknown share of the accuracy: a training failed"
    trainings = f"{point.cost.count} training{'s' if point.cost.count > 1 else ''}"
    lost, left = between(point.cost, 1, 100), between(point.accuracy, 1, 100)
    return f"{lost} points of accuracy (95 %, {trainings}), which is then {left} %"


def _attacks(best: Advised) -> str:
    point = best.point
    if point is None or point.leakage is None:
        return f"Attacks: {point.failed if point is not None and point.failed else 'not run yet'}"
    seen = point.leakage
    return f"Attacks identified {seen.identified} of {seen.pictures} pictures ({seen.verdict})"


def _lineup(best: Advised) -> str:
    assert best.found is not None
    step = best.found.enough
    assert step is not None
    after = best.worst_after
    trained = f", and after training {_share(after)}" if after else ""
    return f"the update contains enough to name {_share(step)} among {best.found.candidates:,} candidates{trained}"


def _certificate(best: Advised) -> str:
    found = best.found.certificate if best.found is not None else None
    if found is None or not found.holds:
        return "no certificate, which needs clipping"
    return f"certificate: {found}" if found.at_most < NEARLY_ALL else "a certificate that rules nothing out"


def _share(step: Step) -> str:
    return f"{percent(step.share)} of {step.pictures:,} pictures (at most {percent(step.at_most)}, 95 %)"


def rows(advice: Advice) -> list[list[str]]:
    """No defense first, then by cost; those that reach nothing last."""
    known = [one for one in advice.advised if one.reached]
    order = sorted(known, key=lambda one: one.cost if one.cost is not None else 1e9)
    rest = [one for one in advice.advised if one.found is not None and not one.reached]
    plain = ["none", NOTHING, NOTHING, NOTHING, between(advice.plain.accuracy, 1, 100), NOTHING, NOTHING, ""]
    return [plain, *(_row(advice, one) for one in (*order, *rest))]


def _note(advice: Advice, one: Advised) -> str:
    if not one.reached:
        return "never enough"
    return "" if one.holds(advice.limit) else "not enough after training"


def _row(advice: Advice, one: Advised) -> list[str]:
    found, point = one.found, one.point
    assert found is not None
    step = found.enough or found.strongest
    seen = point.leakage if point is not None else None
    return [
        one.label,
        show_strength(step.strength),
        f"{percent(step.share)}, at most {percent(step.at_most)}",
        percent(after.at_most) if (after := one.worst_after) is not None else NOTHING,
        between(point.accuracy, 1, 100) if point is not None else NOTHING,
        between(point.cost, 1, 100) if point is not None else NOTHING,
        f"{seen.identified} of {seen.pictures}" if seen else NOTHING,
        "deploy" if one.label == advice.winner else _note(advice, one),
    ]
