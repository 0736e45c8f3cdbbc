"""The scores are tried on the true pictures: where they do not know them, what they miss says nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from oracle_cells import cell_of, records_of, scene
from torch import Tensor

from gradveil.audit import self_score
from gradveil.audit.oracle import KNOWN, explain
from gradveil.audit.plan import Cell
from gradveil.audit.score import Judge
from gradveil.audit.verdict.oracle import Oracle, check_oracle
from gradveil.core.attack import Reconstruction
from gradveil.core.defense import Defense
from gradveil.core.metric import Metric
from gradveil.core.observation import Observation, Truth
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.metrics import METRICS

GALLERY = torch.rand(30, 1, 8, 8, generator=torch.Generator().manual_seed(9))


def judge_with(change: Callable[[Metric], Metric] = lambda metric: metric, gallery: Tensor = GALLERY) -> Judge:
    metrics = METRICS["psnr"](), METRICS["retrieval"](gallery=gallery)
    return Judge([change(metric) for metric in metrics], torch.full((1, 1, 1), 0.5), gallery)


def attacked(private: Batch | None = None, examples: int = 1) -> tuple[Cell, Observation, Truth, Reconstruction]:
    """Four clients, whose pictures the attack knows."""
    scenario = scene(4, examples)
    scenario = scenario if private is None else replace(scenario, private=private)
    cell = cell_of(Defense(), scenario)
    seen, truth = observe(scenario, Defense(), cell.method, cell.observed)
    return cell, seen, truth, cell.method.reconstruct(seen, cell.attacked)


def check_with(judge: Judge, private: Batch | None = None, examples: int = 1) -> Oracle:
    cell, seen, truth, got = attacked(private, examples)
    return check_oracle(records_of(explain(cell, seen, truth, got, judge)))


def rescored(change: Callable[[Tensor], Tensor], name: str) -> Judge:
    def one(metric: Metric) -> Metric:
        score = metric.score
        return replace(metric, score=lambda got, truth: change(score(got, truth))) if metric.name == name else metric

    return judge_with(one)


@pytest.mark.parametrize("examples", [1, 3])
def test_sound_scores_know_every_true_picture(examples: int) -> None:
    cell, _, truth, got = attacked(examples=examples)
    assert self_score.share_known(cell, got, truth, judge_with()).tolist() == [1.0] * 4
    assert check_with(judge_with(), examples=examples).passed


def test_a_copy_in_the_gallery_is_no_other_picture() -> None:
    cell, _, truth, got = attacked()
    judge = judge_with(gallery=torch.cat([GALLERY, truth.private.images.flatten(0, 1)]))
    assert self_score.share_known(cell, got, truth, judge).tolist() == [1.0] * 4


@pytest.mark.parametrize("name", ["psnr", "retrieval"])
@pytest.mark.parametrize("change", [lambda x: 0 * x, lambda x: torch.nan * x], ids=["constant", "no number"])
def test_scores_that_miss_the_truth_itself_fail_the_cell(name: str, change: Callable[[Tensor], Tensor]) -> None:
    found = check_with(rescored(change, name))
    assert (found.passed, found.failure) == (False, "scores")
    assert (
        found.message
        == "guess (adaptive) on defended: shown the true pictures themselves, the scores know 0 % of them."
    )


def test_pictures_that_are_lost_on_their_way_to_the_scores_fail_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    def shuffled(got: Tensor, truth: Tensor, *rest: Tensor) -> object:
        found = plain(got, truth, *rest)
        return found._replace(images=found.images.roll(1, 0))

    plain = self_score.align
    monkeypatch.setattr(self_score, "align", shuffled)
    assert check_with(judge_with()).failure == "scores"


def test_pixels_beyond_what_a_reconstruction_can_show_fail_the_cell() -> None:
    private = scene().private
    assert check_with(judge_with(), Batch(2 * private.images, private.labels)).failure == "scores"


@pytest.mark.parametrize(("unknown", "passed"), [(1, True), (2, False)])
def test_one_picture_of_fifty_may_be_unknown(unknown: int, passed: bool) -> None:
    cell, seen, truth, got = attacked()
    (first, *_) = records_of(explain(cell, seen, truth, got))
    records = [
        replace(first, client=f"c{i}", explained={**first.explained, KNOWN: float(i >= unknown)}) for i in range(50)
    ]
    assert check_oracle(records).passed is passed


def test_what_an_attack_withholds_is_gray_to_the_oracle_as_it_is_to_the_scores() -> None:
    cell, seen, truth, got = attacked()
    shown = explain(cell, seen, truth, got)
    hidden = explain(cell, seen, truth, replace(got, found=torch.zeros_like(got.found)))
    gray = explain(cell, seen, truth, replace(got, images=torch.full_like(got.images, 0.5)))
    for client in range(4):
        assert hidden.of(client)["found"] == gray.of(client)["found"] < shown.of(client)["found"] - 0.02
