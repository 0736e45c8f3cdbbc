"""Points by hand: costs are paired, what failed is never good, and noise at the same accuracy is the yardstick."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from tradeoff_fakes import candidate, example, leakage, outcome, tiny

from gradveil.core.errors import ConfigError
from gradveil.core.metric import Facts
from gradveil.metrics import METRICS
from gradveil.tradeoff import StudySettings, points
from gradveil.tradeoff.defenses import candidates, noise, strengths
from gradveil.tradeoff.estimates import Place, front, matched_scale, next_scale, of_pictures, of_trainings
from gradveil.tradeoff.leakage import Leakage
from gradveil.tradeoff.page import plot
from gradveil.tradeoff.settings import check_settings
from gradveil.tradeoff.summary import columns, headline, rows, sentences


def test_who_beats_noise_at_the_same_accuracy() -> None:
    found = example()
    good, bad = found.point("good").against, found.point("bad").against
    assert good is not None
    assert bad is not None
    assert (good.noise, good.standing) == ("gaussian-0.01", "leaks less")
    assert (bad.noise, bad.standing) == ("gaussian-0.01", "leaks more")
    assert good.leakage.mean == pytest.approx(np.mean([-8, -8, -7.5, -8]))
    assert headline(found).startswith("1 of 2 defenses leak less than noise")
    assert found.point("none").against is None
    assert found.point("gaussian-0.1").against is None


def test_a_failed_training_is_a_failed_point_and_never_a_good_one() -> None:
    found = example()
    broken = found.point("broken")
    assert "1 of 3 trainings failed: RuntimeError" in broken.failed
    assert not broken.measured
    assert not broken.on_front
    assert broken.verdict == "inconclusive"
    assert set(found.front) == {"none", "gaussian-0.1", "good"}
    assert [row[columns(found).index("verdict")] for row in rows(found)] == [
        "leaks",
        "leaks",
        "no leak found",
        "leaks",
        "leaks",
        "failed",
    ]
    assert any("broken failed" in sentence for sentence in sentences(found))
    assert all(len(row) == len(columns(found)) for row in rows(found))


@pytest.mark.parametrize("word", ["inconclusive", "not evaluated"])
def test_little_leakage_that_nobody_could_have_found_is_not_on_the_front(word: str) -> None:
    who = [candidate("none", "none"), candidate("odd")]
    found = outcome(who, {"none": [0.9] * 3, "odd": [0.9] * 3},
                    {"none": leakage([30.0, 31]), "odd": leakage([5.0, 6], verdict=word, adaptive=False)})  # fmt: skip
    assert found.front == ("none",)
    assert found.point("odd").measured
    assert "no adaptive attack" in rows(found)[1][columns(found).index("verdict")]
    beside = found.point("odd").against
    assert beside is not None
    assert f"its own verdict is {word}" in beside.conclusion


def test_an_audit_that_failed_is_a_failed_point() -> None:
    who = [candidate("none", "none"), candidate("odd")]
    for audit in ("ConfigError: no", leakage([5.0, 6], broken="3 of 4 attacks failed")):
        found = outcome(who, {"none": [0.9] * 3, "odd": [0.9] * 3}, {"none": leakage([30.0, 31]), "odd": audit})
        assert found.point("odd").failed
        assert found.front == ("none",)


def test_cost_is_paired() -> None:
    """The same two points less in every training is exact, however much the trainings differ."""
    who = [candidate("none", "none"), candidate("a")]
    found = outcome(who, {"none": [0.9, 0.7, 0.5], "a": [0.88, 0.68, 0.48]}, {})
    cost = found.point("a").cost
    assert cost is not None
    assert cost.mean == pytest.approx(0.02)
    assert cost.low == pytest.approx(0.02)
    assert found.flags[-1] == "unfinished"


def test_students_interval_is_scipys() -> None:
    values = [0.5, 0.61, 0.7, 0.66]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    found = of_trainings(values)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert of_trainings([0.5]).low is None


def test_the_front_against_its_definition() -> None:
    """On random points: nobody on it is beaten, and everybody else is."""
    drawn = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)).mul(8).round()
    places = {str(k): Place(*row) for k, row in enumerate(drawn.tolist())}
    ahead = front(places)
    for label, place in places.items():
        beaten = any(
            o.accuracy >= place.accuracy and o.leakage <= place.leakage and o != place for o in places.values()
        )
        assert (label in ahead) == (not beaten)
    leaks = [places[label].leakage for label in ahead]
    assert leaks == sorted(leaks)


def test_bisecting_the_scale_finds_the_accuracy() -> None:
    """An accuracy that falls smoothly with the logarithm of the scale is met within half a point in a few tries."""

    def accuracy(scale: float) -> float:
        return 0.9 if not scale else 0.1 + 0.8 / (1 + (scale / 0.02) ** 1.5)

    for wanted in (0.85, 0.5, 0.2):
        tried = {scale: accuracy(scale) for scale in (0.0, 1e-3, 1e-2)}
        for _ in range(8):
            scale = next_scale(tried, wanted)
            if scale is None:
                break
            tried[scale] = accuracy(scale)
        assert min(abs(value - wanted) for value in tried.values()) <= 0.015
        assert accuracy(matched_scale(tried, wanted)) >= wanted - 0.005


def test_more_noise_that_helps_is_chance() -> None:
    assert next_scale({0: 0.5, 0.1: 0.9}, 0.7) is None  # nobody has it, not even no noise
    assert matched_scale({0: 0.5, 0.1: 0.6}, 0.9) == 0.1
    assert next_scale({0: 0.9, 0.1: 0.8}, 0.3) == pytest.approx(0.32)  # beyond the strongest


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("gaussian:scale=1e-3,1e-2", [{"scale": 1e-3}, {"scale": 1e-2}]),
        ("dpsgd:clip=1.0,2.0,noise=0.1,0.2", [{"clip": c, "noise": n} for c, n in product((1.0, 2.0), (0.1, 0.2))]),
        ("oasis:transforms=['major', 'shear']", [{"transforms": ["major", "shear"]}]),
        ("sign", [{}]),
    ],
)
def test_strengths(text: str, options: list[dict]) -> None:
    assert [choice.options for choice in strengths(text)] == options


def test_baselines_are_always_there_and_nobody_twice() -> None:
    found = candidates(("gaussian:scale=0.01,0.5", "none", "prune:ratio=0.9", "prune"), (0.01,), 2)
    labels = [one.label for one in found]
    assert labels[:4] == ["none", "gaussian-0.01", "random-policy-0", "random-policy-1"]
    assert len(set(labels)) == len(labels)
    assert [one.role for one in found] == ["none", "noise", "random", "random", "noise", "defense"]
    assert len(StudySettings().candidates()) >= 8
    assert noise(0.01).scale == 0.01
    assert found[0].scale == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"defenses": ("prume",)}, "defenses: unknown name 'prume'"),
        ({"defenses": ("prune:ratio=2",)}, "defenses"),
        ({"seeds": 0}, "seeds: must be between"),
        ({"attacked_seeds": 9}, "attacked_seeds: must be at most 2"),
        ({"stages": (2.0,)}, "stages: must be shares"),
        ({"noise": ()}, "noise: a comparison needs noise"),
        ({"noise": (-1.0,)}, "noise: must be a scale above 0"),
        (
            {"measure": "lpips"},
            "measure: must be leaked or one of the metrics "
            "(psnr, ssim, retrieval, retrieval-rank, psnr-symmetric, retrieval-symmetric), got 'lpips'",
        ),
        ({"metrics": ("psnr",)}, "metrics: must include psnr and retrieval"),
        ({"split": "half"}, "split: must be iid"),
        ({"per_round": 9}, "per"),
        ({"model": "lenett"}, "model: unknown name"),
        ({"budget": "huge"}, "budget"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_key(changes: dict, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_settings(tiny(**changes))
    assert str(error.value).startswith(said)


def test_rounds_that_are_attacked() -> None:
    assert tiny(rounds=100, stages=(0.01, 1.0, 0.5)).attacked_rounds() == (1, 50, 100)
    assert math.isclose(tiny(rate=0.3).federation(1).rate, 0.3)
    assert [tiny().federation(k).seed for k in (0, 1)] == [0, 1]


@pytest.mark.parametrize("measure", ["lpips", "worst-pixel"])
def test_the_front_follows_the_direction_of_its_measure(measure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric of which less leaks more: LPIPS, and one that came in a file and a row of its own."""
    new = Facts(name="worst-pixel", label="Worst pixel", more_is_leakier=False)
    monkeypatch.setitem(METRICS, "worst-pixel", new.builds(lambda: new.metric(lambda got, truth: got)))

    def measured(values: list[float]) -> Leakage:
        named = dict(zip("abc", values, strict=True))
        seen = leakage([20.0, 20, 20], verdict="no leak found")
        return leakage([20.0, 20, 20], verdict="no leak found", values={**seen.values, measure: named},
                       measures={**seen.measures, measure: of_pictures(values)})  # fmt: skip

    who = [candidate("none", "none"), candidate("good"), candidate("bad")]
    audits = {"none": measured([0.1, 0.2, 0.3]), "good": measured([0.6, 0.7, 0.8]), "bad": measured([0.01, 0.0, 0.02])}
    accuracies = {"none": [0.9] * 3, "good": [0.8] * 3, "bad": [0.7] * 3}
    found = outcome(who, accuracies, audits, study=tiny(measure=measure, seeds=3))
    assert set(found.front) == {"none", "good"}
    assert points.place(found.point("good"), measure).leakage < points.place(found.point("bad"), measure).leakage
    assert found.point("bad").against.standing in ("leaks more", "no such noise")
    assert not plot(found, measure).upward
    assert columns(found)[5] == METRICS[measure].facts.label
