"""Where metrics disagree: ranks against SciPy's, and the pictures that the page names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from gradveil.audit.results import Run
from gradveil.audit.verdict.estimate import cells_of
from gradveil.audit.verdict.leak import Baselines
from gradveil.experiment.record import Record
from gradveil.report.agreement import agreement, rank_correlation
from gradveil.report.build import render

BLANK = 12.0


def trial(client: int, psnr: float, found: float, **scores: float) -> Record:
    own = {"psnr": psnr, "retrieval": found, "retrieval-top5": found, **scores}
    return Record(
        key=f"scene/none/a/unaware/c{client}/0", status="ok", scenario="scene", defense="none", attack="a",
        attacker="unaware", client=f"c{client}", example=0, seed=0, seconds=1.0, backend="toy", scores=own,
        blank=BLANK, loss=0.1,
    )  # fmt: skip


def compared(records: list[Record]):
    baselines = Baselines.of(records)
    return agreement(cells_of(records, baselines), baselines)


def page(records: list[Record], **provenance) -> str:
    scenes = {"scene": {"role": "audited", "regime": "diagnostic"}}
    origin = {"scenarios": scenes, "gallery": 1000, **provenance}
    return render(Run(folder=Path("run"), name="run", records=tuple(records), provenance=origin))


@pytest.mark.parametrize("levels", [3, 1000])
def test_rank_correlation_is_spearmans_with_ties(levels):
    rng = np.random.default_rng(levels)
    x, y = rng.integers(0, levels, (2, 40)).astype(float)
    assert rank_correlation(x.tolist(), y.tolist()) == pytest.approx(spearmanr(x, y).statistic, abs=1e-10)
    assert rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


def test_a_metric_that_falls_with_leakage_is_turned_round():
    found = compared([trial(i, 10.0 + i, 0.0, lpips=1 - 0.1 * i, ssim=0.1 * i) for i in range(6)])
    assert {one.title: one.value for one in found.correlations} == {"SSIM": 1.0, "LPIPS": 1.0}


def test_pictures_on_which_gallery_and_decibels_disagree_are_named():
    both, neither = trial(0, 25.0, 1.0), trial(1, 11.0, 0.0)
    close, far, farther = trial(2, 24.0, 0.0), trial(3, 14.0, 1.0), trial(4, 13.0, 1.0)
    found = compared([both, neither, close, far, farther])
    assert [r.client for r in found.close] == ["c2"]
    assert [r.client for r in found.far] == ["c4", "c3"]
    assert found.disagree == 3
    report = page([both, neither, close, far, farther])
    assert "Found, but not close" in report
    assert "Close, but not found" in report
    assert "c4, picture 0" in report


def test_nothing_to_compare_says_nothing():
    assert compared([]) is None
    alone = [trial(i, 10.0 + i, 0.0) for i in range(5)]
    assert "In all 5 trials squared error and gallery agree." in " ".join(page(alone).split())


def test_the_card_shows_searches_with_chance_and_interval_and_what_a_client_sends():
    report = " ".join(
        page([trial(0, 25.0, 1.0), trial(1, 11.0, 0.0)], update_bytes={"scene": {"none": 57_294}}).split()
    )
    assert "among the 5 nearest, pixels" in report
    assert "random guessing 0.50 %" in report
    assert "1\u201399 %" in report
    assert "57.3 kB" in report


def test_the_pictures_are_ranked_by_how_surely_they_are_found():
    from gradveil.report.pictures import tabulate_pictures

    records = [trial(0, 13.0, 0.0), trial(1, 12.0, 0.0), trial(2, 11.0, 1.0)]
    records[1].scores["retrieval-top5"] = 1.0
    seen: list[str] = []

    class Looked(Run):
        def pictures(self, record: Record):
            seen.append(record.client)

    baselines = Baselines.of(records)
    run = Looked(folder=Path("run"), name="run", records=tuple(records))
    tabulate_pictures(run, cells_of(records, baselines), {}, baselines)
    assert seen == ["c2", "c1", "c0"]
