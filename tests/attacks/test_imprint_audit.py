"""Planting attacks in an audit: only where the server may, with controls, a verdict and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradveil.audit import run
from gradveil.conclusion import conclude
from gradveil.config import build, from_tables
from gradveil.defenses.gaussian import Gaussian
from gradveil.errors import ConfigError
from gradveil.results import read_run

PASSIVE = ["linear", "dlg", "invertgrad", "gradinversion"]


def tables(attack: dict[str, Any], **scenario: Any) -> dict[str, Any]:
    own = {"attacker": "malicious", "data": "digits", "images": 4, "batch_size": 4, **scenario}
    return {"scenario": own, "defense": {"none": {}, "gaussian": {"scale": 1e-2}}, "attack": attack}


def test_a_curious_server_does_not_plant() -> None:
    assert list(from_tables(tables({"autoattack": {}}, attacker="curious")).attack) == PASSIVE
    audit = build(from_tables(tables({"rtf": {}}, attacker="curious")))
    with pytest.raises(ConfigError, match=r"attack\.rtf: changes the model"):
        run(audit, "never-written")
    assert not Path("never-written").exists()


def test_autoattack_of_a_malicious_server_plants_first() -> None:
    config = from_tables(tables({"autoattack": {"steps": 7}}, batch_size=32, aggregate=2))
    assert list(config.attack) == ["rtf", "rtf-fourier", "rtf-random", "cah", *PASSIVE]
    functionals = [config.attack[name].options["functional"] for name in ("rtf", "rtf-fourier", "rtf-random")]
    assert functionals == ["mean", "fourier:32", "random"]
    assert config.attack["rtf"].options["neurons"] == 1024
    assert (config.attack["cah"].options["examples"], config.attack["invertgrad"].options["steps"]) == (64, 7)
    assert config.sequence


@pytest.mark.parametrize("attack", [{"rtf": {"neurons": 200}}, {"cah": {"neurons": 128, "examples": 4}}])
def test_an_audit_from_end_to_end(attack: dict[str, Any], tmp_path: Path) -> None:
    run(build(from_tables(tables(attack))), tmp_path)
    verdict = conclude(tmp_path)
    assert verdict.word == "leaks"
    records = read_run(tmp_path).records
    assert {record.status for record in records} == {"ok"}
    assert {record.control for record in records} == {"", "another", "prior"}
    plain = [r for r in records if r.defense == "none" and not r.control and not r.scenario.endswith("diagnostic")]
    assert sum(r.scores["psnr"] > 100 for r in plain) >= 14
    assert all(r.scores["psnr"] < 30 for r in records if r.control == "prior")
    page = (tmp_path / "report.html").read_text()
    assert "malicious" in page


def test_a_sum_over_clients_in_an_audit(tmp_path: Path) -> None:
    run(build(from_tables(tables({"rtf": {"sparse": True}}, batch_size=2, aggregate=4))), tmp_path)
    assert conclude(tmp_path).word == "leaks"
    page = (tmp_path / "report.html").read_text()
    assert "sums over 4 clients alone" in page
    assert "the server sees only the sum over several clients" not in page


def test_noise_is_in_the_audit() -> None:
    assert build(from_tables(tables({"rtf": {}}))).defenses["gaussian"] == Gaussian(scale=1e-2)
