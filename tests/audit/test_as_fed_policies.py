"""Figure 14 of OASIS: a policy of transformations against a server that reads pictures off exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.cli import main
from gradveil.config import AuditConfig, Choice, ScenarioConfig, build

FIGURE_14 = ["audit", "--attacker", "malicious", "--attack", "rtf:neurons=500", "--defense", "ats:3-1-7"]


@pytest.mark.more
def test_figure_14_of_oasis_leaks(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main([*FIGURE_14, "--images", "8", "--out", str(tmp_path), "--fail-on", "leaks", "--quiet"])
    assert left.value.code == 1
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["verdict"] == "leaks"
    (ats,) = (one for one in verdict["findings"] if one["defense"].startswith("ats"))
    assert ats["leaked"] >= 3
    assert "as they were fed to the model" in " ".join(ats["reasons"])
    assert ", as it was fed to the model" in (tmp_path / "report.html").read_text()


def test_a_policy_that_is_read_off_as_fed_leaks_on_small_pictures_too(tmp_path: Path) -> None:
    plain = ScenarioConfig(
        model="mlp", data="digits", data_options={"size": 8, "split": "train"}, images=10, attacker="malicious"
    )
    attack, defense = Choice(name="rtf", options={"neurons": 64}), Choice(name="ats", options={"policy": "3-1-7"})
    config = AuditConfig(scenario=plain, attack={"rtf": attack}, defense={"ats": defense}, gallery=300, lineup=0)
    run_audit(build(config), tmp_path)
    verdict = judge(read_run(tmp_path))
    assert verdict.word == "leaks"
    assert "as they were fed to the model" in " ".join(verdict.findings[0].reasons)
