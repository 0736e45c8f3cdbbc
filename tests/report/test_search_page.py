"""The page of a search: everything that was found is on it, and nothing that a browser would run."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gradveil.experiment.record import Record
from gradveil.search.outcome import Confirmed, Scored, SearchOutcome
from gradveil.search.page import charts, write_search_page
from gradveil.transforms.library import LIBRARIES


def record(policy: str, score: str, values: list[float]) -> Record:
    scores = {str(place): value for place, value in enumerate(values)}
    who = {"attacker": "unaware", "client": "0-2", "example": 0, "seed": 0, "seconds": 0.0, "backend": "sweep"}
    what = {"key": f"{score}/{policy}", "scenario": "search", "defense": policy, "attack": f"{score}-score"}
    return Record(status="ok", scores=scores, **what, **who)  # type: ignore[arg-type]


RECORDS = [
    record(str(place), score, [0.3 + place / 100, 0.4 + place / 100])
    for place in range(6)
    for score in ("privacy", "accuracy")
]
CURVE: dict[str, Any] = {
    "straight": [[0.0, 0.2, 0.1, 0.3], [1.0, 1.0, None, None]],
    "attack": [[0, 0.2, 0.1, 0.3], [10, 0.9, 0.8, 1.0]],
    "layers": {"conv1.weight": [0.1, 0.5], "fc.weight": [0.2, 0.9]},
    "steps": [0, 10],
}


@pytest.fixture
def outcome() -> SearchOutcome:
    seen = Confirmed(attacker="unaware", pictures=4, failed=0, psnr=9.5, low=9.0, high=10.0, psnr_fed=8.0, identified=1,
                     leaked=1)  # fmt: skip
    best = Scored(policy="3", functions=("translateX9",), privacy=0.1, low=0.05, high=0.2, area=0.33, in_top=0.9,
                  accuracy=-1.1, confirmed=(seen,))  # fmt: skip
    return SearchOutcome(
        library=LIBRARIES["ats-code"], hybrid="3+<script>", policies=(best,), candidates=6, distinct=6, distorted=0,
        passed=6, threshold=-1.35, untransformed=-1.1, rule="published", failed=0, scored=6,
        settings={"data": "<img src=x>", "model": "lenet"},
        curves={"none": {**CURVE, "policy": "none"}, "best": {**CURVE, "policy": "3"}},
    )  # fmt: skip


def test_all_that_was_found_is_there_and_nothing_runs(outcome: SearchOutcome, tmp_path: Path) -> None:
    page = write_search_page(tmp_path / "report.html", outcome, RECORDS)
    text = page.read_text()
    assert page.stat().st_mode & 0o077 == 0
    for expected in ("translateX9", "0.100", "9.5", "1 of 4", "3+&lt;script&gt;", "&lt;img src=x&gt;"):
        assert expected in text
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("<svg") == 6  # both scores, one at a time, two ways, two layers


def test_the_scatter_has_a_dot_for_every_policy_with_both_scores(outcome: SearchOutcome) -> None:
    first = next(iter(charts(outcome, [*RECORDS, record("1-2", "privacy", [0.1, 0.2])])))
    dots = ElementTree.fromstring(first.svg()).findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 6


def test_what_a_race_left_behind_is_not_drawn_beside_what_ran_to_the_end(outcome: SearchOutcome) -> None:
    first = next(iter(charts(outcome, [*RECORDS, record("9", "privacy", [0.1]), record("9", "accuracy", [-1.0])])))
    assert "<title>9</title>" not in first.svg()
