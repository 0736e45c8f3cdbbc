"""From trainings and audits to points: who is on the front, and who beats noise at the same accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean

from gradveil.experiment.record import Record
from gradveil.tradeoff.defenses import Candidate
from gradveil.tradeoff.estimates import (
    Between,
    Place,
    differences,
    front,
    matched_scale,
    of_accuracies,
    of_pictures,
    of_trainings,
)
from gradveil.tradeoff.leakage import Leakage, measure_facts
from gradveil.tradeoff.outcome import Against, Point, Standing
from gradveil.tradeoff.settings import StudySettings

SAME = 0.02  # of the accuracy: what is further apart is not called the same
FEWEST = {"few-seeds": 3, "one-attacked-training": 2, "single-stage": 2, "few-random-policies": 10, "few-pictures": 100}
FLAGS = {
    "few-seeds": "fewer than 3 trainings of each defense: an accuracy may be luck",
    "one-attacked-training": "the models of one training alone were attacked: another may leak more or less",
    "single-stage": "models were attacked at one stage of training alone: early ones leak most",
    "few-random-policies": "fewer than 10 random policies: a searched policy has to beat the best of many",
    "few-pictures": "fewer than 100 pictures were attacked: intervals of means are too narrow",
    "unfinished": "the study is not finished: what is missing is named in the table",
}


def flags_of(study: StudySettings, points: Sequence[Point]) -> tuple[str, ...]:
    counts = {
        "few-seeds": study.seeds,
        "one-attacked-training": study.attacked_seeds,
        "single-stage": len(study.attacked_rounds()),
        "few-random-policies": study.random_policies,
        "few-pictures": study.images * study.victim_batch * study.attacked_seeds,
    }
    raised = [name for name, least in FEWEST.items() if counts[name] < least]
    return tuple(raised + (["unfinished"] if any(point.missing for point in points) else []))


def points_of(
    study: StudySettings,
    candidates: Sequence[Candidate],
    trainings: Mapping[str, Mapping[int, Record]],
    audits: Mapping[str, Leakage | str],
) -> tuple[Point, ...]:
    """One for each candidate. `audits` holds what was measured or, as a text, why it failed."""
    found = [_point(study, one, trainings.get(one.label, {}), audits.get(one.label)) for one in candidates]
    plain = next((point for point in found if point.candidate.role == "none"), None)
    found = [_with_cost(point, plain) for point in found]
    found = [_with_noise(study, point, found) for point in found]
    on_front = front({p.label: place(p, study.measure) for p in found if p.believed})
    return tuple(replace(point, on_front=point.label in on_front) for point in found)


def _point(study: StudySettings, one: Candidate, records: Mapping[int, Record], audit: Leakage | str | None) -> Point:
    bad = [record for record in records.values() if record.status == "failed"]
    sound = {number: records[number].scores["accuracy"] for number in sorted(records) if records[number].scores}
    failed = f"{len(bad)} of {study.seeds} trainings failed: {bad[0].reason}" if bad else ""
    failed = failed or (audit if isinstance(audit, str) else audit.broken if audit else "")
    left = study.seeds - len(records)
    missing = f"{left} trainings" if left else "" if audit or failed else "the audit"
    return Point(
        candidate=one,
        accuracies=sound,
        accuracy=of_accuracies(list(sound.values())) if sound else None,
        leakage=audit if isinstance(audit, Leakage) else None,
        failed=failed,
        missing=missing,
        curve=_curve([record for record in records.values() if record.status == "ok"]),
        notes=tuple(dict.fromkeys(note for record in records.values() for note in record.notes)),
    )


def _curve(records: Sequence[Record]) -> dict[int, float]:
    """The mean accuracy after every round that was measured in all trainings."""
    each = [
        {int(k.removeprefix("accuracy@")): v for k, v in r.scores.items() if k.startswith("accuracy@")} for r in records
    ]
    rounds = sorted(set.intersection(*(set(one) for one in each))) if each else []
    return {number: mean(one[number] for one in each) for number in rounds}


def _with_cost(point: Point, plain: Point | None) -> Point:
    if plain is None or point is plain:
        return point
    apart = differences(plain.accuracies, point.accuracies)
    return replace(point, cost=of_trainings(apart)) if apart else point


def place(point: Point, measure: str) -> Place:
    """Leakage always grows to the worse, whatever the measure does."""
    assert point.accuracy is not None
    assert point.leakage is not None
    value = point.leakage.measures[measure].mean
    return Place(point.accuracy.mean, measure_facts(measure).leakage(value))


def noise_accuracies(points: Sequence[Point]) -> dict[float, float]:
    """By scale; no defense is noise of scale 0."""
    roles = ("none", "noise")
    sound = [p for p in points if p.candidate.role in roles and p.accuracy is not None and not p.failed]
    return {point.candidate.scale: point.accuracy.mean for point in sound if point.accuracy is not None}


def _with_noise(study: StudySettings, point: Point, points: Sequence[Point]) -> Point:
    """Compared with the strongest noise that keeps its accuracy."""
    if not point.measured or point.candidate.role in ("none", "noise"):
        return point
    measured = [other for other in points if other.measured]
    by_scale = {other.candidate.scale: other for other in measured if other.candidate.role in ("none", "noise")}
    if not by_scale or point.accuracy is None:
        return point
    scale = matched_scale(noise_accuracies(list(by_scale.values())), point.accuracy.mean)
    return replace(point, against=against(point, by_scale[scale], study.measure))


def against(point: Point, noise: Point, measure: str) -> Against:
    assert point.leakage is not None
    assert noise.leakage is not None
    accuracy = of_trainings(differences(point.accuracies, noise.accuracies))
    leakage = of_pictures(differences(point.leakage.values[measure], noise.leakage.values[measure]))
    standing = _standing(accuracy, leakage, measure)
    return Against(noise=noise.label, accuracy=accuracy, leakage=leakage, standing=standing,
                   conclusion=_conclusion(point, noise, accuracy, standing))  # fmt: skip


def _standing(accuracy: Between, leakage: Between, measure: str) -> Standing:
    if abs(accuracy.mean) > SAME:
        return "no such noise"
    if leakage.low is None or leakage.high is None or leakage.low <= 0 <= leakage.high:
        return "not told apart"
    return "leaks more" if (leakage.low > 0) == measure_facts(measure).more_is_leakier else "leaks less"


def _conclusion(point: Point, noise: Point, accuracy: Between, standing: Standing) -> str:
    against = "no defense at all" if noise.candidate.role == "none" else f"noise of scale {noise.candidate.scale:g}"
    if standing == "no such noise":
        if accuracy.mean > 0:
            return f"is {100 * accuracy.mean:.1f} points more accurate than {against}, the nearest"
        return (
            f"{against} is the strongest tried that keeps the accuracy, and is {-100 * accuracy.mean:.1f} points above"
        )
    text = {
        "leaks less": f"leaks less than {against}, at the same accuracy",
        "leaks more": f"leaks more than {against}, at the same accuracy",
        "not told apart": f"cannot be told apart from {against}, at the same accuracy",
    }[standing]
    return text if point.believed else f"{text}; but its own verdict is {point.verdict}"
