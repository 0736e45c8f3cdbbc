"""Unusual pictures are audited on purpose, reported apart, and no bound speaks of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gradveil.audit.audit import run_audit
from gradveil.audit.canaries import choose_canaries
from gradveil.audit.results import read_run
from gradveil.audit.split import split_dataset
from gradveil.audit.verdict import judge
from gradveil.config import build, from_tables
from gradveil.data import Dataset
from gradveil.report.claim import examine_claim
from gradveil.report.conclude import conclude
from gradveil.report.not_tested import list_not_tested


def dataset(labels: list[int], outliers: tuple[int, ...] = ()) -> Dataset:
    images = torch.full((len(labels), 1, 2, 2), 0.5) + 1e-3 * torch.arange(len(labels))[:, None, None, None]
    for place, row in enumerate(outliers):
        images[row] = 1.0 - 0.01 * place
    targets = torch.nn.functional.one_hot(torch.tensor(labels)).float()
    return Dataset(name="d", images=images, targets=targets, class_names=(), mean=(0.0,), std=(1.0,))


def test_where_classes_are_alike_the_farthest_from_the_mean_are_chosen() -> None:
    labels = [row % 2 for row in range(40)]
    assert choose_canaries(dataset(labels, (7, 30, 2)), range(40), 3) == [7, 30, 2]


def test_half_are_of_the_rarest_classes() -> None:
    labels = [0] * 30 + [1] * 8 + [2] * 2
    chosen = choose_canaries(dataset(labels, (7, 12)), range(40), 4)
    assert set(chosen) == {38, 39, 7, 12}


def test_victims_are_never_canaries_and_few_data_give_few() -> None:
    data = dataset([0] * 60, (5, 6))
    assert choose_canaries(data, [row for row in range(60) if row != 5], 1) == [6]
    assert len(choose_canaries(data, range(60), 16)) == 6
    assert choose_canaries(data, range(9), 16) == []


def test_the_parts_stay_disjoint_and_the_victims_the_same() -> None:
    labels = [row % 7 for row in range(200)]
    plain, more = split_dataset(dataset(labels), 8, 2), split_dataset(dataset(labels), 8, 2, canaries=16)
    assert plain.rows == more.rows
    assert len(more.canary_rows) == 16
    assert not set(more.rows) & set(more.canary_rows)
    assert more.gallery is not None
    assert more.public is not None
    levels = [*more.gallery[:, 0, 0, 0].tolist(), *more.public.images[:, 0, 0, 0].tolist()]
    assert more.canaries is not None
    assert not set(levels) & set(more.canaries.images[:, 0, 0, 0].tolist())
    assert len(levels) == 200 - 16 - 16


def tables(**scenario: object) -> dict:
    return {
        "metrics": ["psnr", "retrieval"],
        "convergence": False,
        "scenario": {"model": "mlp", "data": "digits", "data_options": {"size": 8}, "images": 20, **scenario},
        "defense": {"none": {}, "noise": {"name": "gaussian", "scale": 10.0}},
        "attack": {"linear": {}},
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canaries") / "run"
    run_audit(build(from_tables(tables(canaries=6))), folder)
    conclude(folder)
    return folder


def test_they_have_a_section_of_the_page_and_of_the_verdict(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert "Rare and unusual pictures" in page
    assert "Not tested. <code>canaries" not in page
    written = json.loads((finished / "verdict.json").read_text())
    apart = [one for one in written["findings"] if one["role"] == "canaries"]
    assert {one["defense"] for one in apart} == {"none", "noise"}
    assert all(one["scenario"] == "digits-mlp-b1-canaries" and one["pictures"] == 6 for one in apart)
    assert all(one["at_most"] is None for one in apart)
    assert len(written["provenance"]["canary_rows"].split()) <= 6
    assert all(one["pictures"] == 20 for one in written["findings"] if one["role"] == "audited")


def test_without_them_the_page_says_that_they_were_not_tested(tmp_path: Path) -> None:
    run_audit(build(from_tables(tables(images=2))), tmp_path / "run")
    conclude(tmp_path / "run")
    assert "Not tested. <code>canaries" in (tmp_path / "run" / "report.html").read_text()
    run = read_run(tmp_path / "run")
    assert any("`canaries`" in line for line in list_not_tested(run, judge(run)))


def test_a_leak_of_a_canary_counts_and_its_silence_does_not(finished: Path) -> None:
    """Whatever the words of the sample are: canaries of which nothing leaked change neither word nor claim."""
    verdict = judge(read_run(finished))
    aside = [one for one in verdict.findings if not one.tally.is_sample and not one.tally.undefended]
    drawn = [one for one in verdict.findings if one.tally.is_sample]
    for word in ("inconclusive", "no leak found", "not evaluated"):
        quiet = replace(verdict, findings=(*drawn, *(replace(one, verdict=word) for one in aside)))
        alone = replace(verdict, findings=tuple(drawn))
        assert quiet.word == alone.word
        assert examine_claim(quiet, 0.5).supported == examine_claim(alone, 0.5).supported
    silent = [replace(one, verdict="no leak found") for one in drawn]
    assert replace(verdict, findings=(*silent, replace(aside[0], verdict="leaks"))).word == "leaks"


def test_a_client_has_as_many_canaries_as_others_have_pictures() -> None:
    audit = build(from_tables(tables(canaries=5, batch_size=4)))
    (chosen,) = (one for one in audit.also if one.chosen)
    assert chosen.private.images.shape[:2] == (2, 4)


def test_a_thorough_budget_has_sixteen() -> None:
    assert from_tables({"budget": "thorough"}).scenario.canaries == 16
    assert from_tables({"budget": "thorough", "scenario": {"canaries": 0}}).scenario.canaries == 0
    assert from_tables({}).scenario.canaries == 0
