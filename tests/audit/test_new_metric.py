"""A metric of which less leaks more, in a file and a row of its own: everybody reads its facts, and nobody a list."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from torch import Tensor

from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import Run, read_run
from gradveil.audit.table import as_csv
from gradveil.audit.verdict import judge
from gradveil.audit.verdict.estimate import scores_of
from gradveil.config import AuditConfig, Choice, ScenarioConfig, build
from gradveil.core.metric import Facts, Metric
from gradveil.metrics import METRICS, facts_of
from gradveil.report.build import render
from gradveil.report.conclude import conclude
from gradveil.report.pictures import find_best
from gradveil.report.terminal import tables

ERROR = Facts(
    name="worst-pixel", label="Worst pixel", unit="levels", more_is_leakier=False, columns=("worst", "median")
)


@ERROR.builds
def worst_pixel() -> Metric:
    """How far the worst pixel is off, in levels of 8 bits."""

    def score(got: Tensor, truth: Tensor) -> Tensor:
        return 255 * (got - truth).abs().flatten(-3).amax(-1)

    return ERROR.metric(score)


def audit(*metrics: str) -> Audit:
    scenario = ScenarioConfig(model="mlp", data="digits", images=4, labels="known")
    defenses = {"none": Choice(name="none"), "gaussian": Choice(name="gaussian", options={"scale": 0.05})}
    attacks = {"dlg": Choice(name="dlg", options={"steps": 20})}
    return build(
        AuditConfig(scenario=scenario, defense=defenses, attack=attacks, metrics=metrics, convergence=False, lineup=0)
    )


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "worst-pixel", worst_pixel)


@pytest.fixture(
    scope="module", params=[("worst-pixel",), ("psnr", "retrieval", "worst-pixel")], ids=["alone", "beside others"]
)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for all tests, which only read it."""
    folder = tmp_path_factory.mktemp("metric") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METRICS, "worst-pixel", worst_pixel)
        run_audit(audit(*request.param), folder)
        conclude(folder)
    return folder


@pytest.fixture
def folder(finished: Path, row: None) -> Path:
    return finished


def values(found: Run, defense: str) -> list[float]:
    return scores_of(r for r in found.records if r.defense == defense and not r.control)["worst-pixel"]


def test_the_verdict_names_the_worst_picture(folder: Path) -> None:
    verdict, found = json.loads((folder / "verdict.json").read_text()), read_run(folder)
    for cell in (one for one in verdict["cells"] if one["scenario"].endswith("b1") and one["attacker"] == "unaware"):
        shown = [r for r in found.records if (r.defense, r.attacker, r.control) == (cell["defense"], "unaware", "")]
        own = scores_of(r for r in shown if r.scenario == cell["scenario"])["worst-pixel"]
        assert cell["metrics"]["worst-pixel"]["worst"] == min(own)
        assert cell["metrics"]["worst-pixel"]["most"] <= cell["metrics"]["worst-pixel"]["median"]
    for finding in verdict["findings"]:
        assert finding["metrics"]["worst-pixel"]["worst"] == min(values(found, finding["defense"]))


def test_the_tables_on_the_terminal_and_as_csv(folder: Path) -> None:
    found = read_run(folder)
    printed = str(list(tables(judge(found).cells)))
    assert "Worst pixel worst" in printed
    assert f"{min(values(found, 'none')):.2f}" in printed
    rows = list(csv.DictReader(io.StringIO(as_csv(found.records))))
    assert {float(one["worst-pixel"]) for one in rows if one["worst-pixel"]} >= set(values(found, "none"))


def test_the_page_shows_the_most_leaked_picture_first(folder: Path) -> None:
    found = read_run(folder)
    verdict = judge(found)
    page = " ".join(render(found).split())
    assert re.search(r'colspan="2"[^>]*>Worst pixel, levels</th>', page)
    assert "lower Worst pixel" in page
    for cell in (one for one in verdict.cells if not one.control):
        assert f">{cell.metrics['worst-pixel'].worst:.2f}<" in page
    if "psnr" in found.records[0].scores:
        return
    for cell in (one for one in verdict.cells if not one.control):
        best = sorted(find_best(found, cell.records, verdict.baselines).values(), key=lambda one: one[0], reverse=True)
        errors = [record.scores["worst-pixel"] for _, record in best]
        assert errors == sorted(errors)


def test_a_folder_that_knows_a_metric_that_the_catalogue_does_not(tmp_path: Path) -> None:
    """Built by hand, in no table: the folder says how it is read."""
    plain = audit("psnr", "retrieval")
    run_audit(Audit(**{**vars(plain), "metrics": (*plain.metrics, worst_pixel()), "settings": {}}), tmp_path)
    found = read_run(tmp_path)
    assert (found.facts("worst-pixel").label, found.facts("worst-pixel_fed").unit) == ("Worst pixel", "levels")
    (none,) = (f.tally for f in judge(found).findings if f.tally.defense == "none")
    assert none.worst["worst-pixel"].worst == min(values(found, "none"))
    assert found.facts("psnr") is facts_of("psnr")


def test_what_nobody_knows_leaks_upward_and_keeps_its_name(tmp_path: Path) -> None:
    found = Run(folder=tmp_path, name="run", records=(), provenance={"metrics": {"odd": {"more_is_leakier": "no"}}})
    for name in ("odd", "other"):
        assert found.facts(name) == Facts(name=name, label=name)
