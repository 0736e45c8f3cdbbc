"""Planting attacks in an audit: only where the server may, with controls, a verdict and a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradveil.attacks.autoattack import STAGES
from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.config import build, from_tables
from gradveil.core.errors import ConfigError
from gradveil.defenses.gaussian import Gaussian
from gradveil.report.conclude import conclude

PASSIVE = list(STAGES)


def tables(attack: dict[str, Any], **scenario: Any) -> dict[str, Any]:
    own = {"attacker": "malicious", "data": "digits", "images": 4, "batch_size": 4, **scenario}
    return {"lineup": 0, "scenario": own, "defense": {"none": {}, "gaussian": {"scale": 1e-2}}, "attack": attack}


def test_a_curious_server_does_not_plant() -> None:
    assert list(from_tables(tables({"autoattack": {}}, attacker="curious")).attack) == PASSIVE
    audit = build(from_tables(tables({"rtf": {}}, attacker="curious")))
    with pytest.raises(ConfigError, match=r"attack\.rtf: modifies the model"):
        run_audit(audit, "never-written")
    assert not Path("never-written").exists()


@pytest.mark.parametrize("attack", ["rtf", "cah"])
@pytest.mark.parametrize(
    ("at", "said"), [("convv", "no layer 'convv', did you mean 'conv"), ("conv2", "sees features")]
)
def test_a_place_that_cannot_take_the_layer_is_said_before_anything_is_written(
    attack: str, at: str, said: str, tmp_path: Path
) -> None:
    audit = build(from_tables(tables({"mine": {"name": attack, "at": at}})))
    with pytest.raises(ConfigError, match=rf"attack\.mine: .*{said}"):
        run_audit(audit, tmp_path / "never-written")
    assert not list(tmp_path.iterdir())


def test_autoattack_of_a_malicious_server_plants_first() -> None:
    config = from_tables(tables({"autoattack": {"steps": 7}}, batch_size=32, aggregate=2))
    assert list(config.attack) == ["rtf", "rtf-fourier", "rtf-random", "cah", *PASSIVE]
    functionals = [config.attack[name].options["functional"] for name in ("rtf", "rtf-fourier", "rtf-random")]
    assert functionals == ["mean", "fourier:32", "random"]
    assert config.attack["rtf"].options["neurons"] == 1024
    assert (config.attack["cah"].options["examples"], config.attack["portfolio"].options["steps"]) == (64, 7)
    assert config.sequence


OASIS = {"none": {}, "mixed": {"name": "oasis", "transforms": "major+hflip"}}


@pytest.mark.parametrize("budget", ["quick", "standard", "thorough"])
def test_where_a_defense_feeds_copies_autoattack_takes_mixtures_apart(budget: str) -> None:
    copied = {**tables({"autoattack": {}}, batch_size=16), "defense": OASIS, "budget": budget}
    config = from_tables(copied)
    assert list(config.attack) == ["rtf", "rtf-fourier", "rtf-random", "cah", "cah-separate", "unmix", *PASSIVE]
    unmix = config.attack["unmix"].options
    assert (unmix["inner"], unmix["functional"], unmix["neurons"]) == ("rtf", "mean", 16 * 16 * 5)
    assert "steps" not in unmix
    assert config.attack["cah"].options["examples"] == 16 * 5  # all that are fed
    separating = config.attack["cah-separate"].options
    assert (separating["examples"], separating["separate"], separating["neurons"]) == (16, "major+hflip", 16 * 16 * 5)
    stacked = {"both": {"name": "stack", "of": [{"name": "oasis-hf"}, {"name": "gaussian"}]}}
    of_both = from_tables({**copied, "defense": {**OASIS, **stacked}}).attack
    assert of_both["cah-separate"].options["separate"] == "major+hflip"
    assert "unmix" in of_both
    curious = {**copied, "scenario": {**copied["scenario"], "attacker": "curious"}}
    assert list(from_tables(curious).attack) == PASSIVE


def test_a_stage_of_that_name_that_was_chosen_is_left_alone() -> None:
    config = from_tables({**tables({"autoattack": {}, "unmix": {"tv": 1e-4}}), "defense": OASIS})
    assert (config.attack["unmix"].options["tv"], config.attack["autoattack.unmix"].options["tv"]) == (1e-4, 1e-5)


def test_what_rtf_reads_as_a_mixture_unmix_takes_apart_in_the_same_audit(tmp_path: Path) -> None:
    few = {"images": 2, "batch_size": 2}
    stages = from_tables({**tables({"autoattack": {}}, **few), "defense": OASIS}).attack
    chosen = {name: dict(stages[name].options) for name in ("rtf", "unmix")}
    run_audit(build(from_tables({**tables(chosen, **few), "defense": OASIS, "sequence": True})), tmp_path)
    assert conclude(tmp_path).word == "leaks"
    knowing = [r for r in read_run(tmp_path).records if (r.defense, r.attacker) == ("mixed", "adaptive")]
    best = {name: max(r.scores["psnr"] for r in knowing if r.attack == name) for name in ("rtf", "unmix")}
    assert best["rtf"] < 30 < 50 < best["unmix"]


@pytest.mark.parametrize("attack", [{"rtf": {"neurons": 200}}, {"cah": {"neurons": 128, "examples": 4}}])
def test_an_audit_from_end_to_end(attack: dict[str, Any], tmp_path: Path) -> None:
    run_audit(build(from_tables(tables(attack))), tmp_path)
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
    run_audit(build(from_tables(tables({"rtf": {"sparse": True}}, batch_size=2, aggregate=4))), tmp_path)
    assert conclude(tmp_path).word == "leaks"
    page = (tmp_path / "report.html").read_text()
    assert "sums over 4 clients alone" in page
    assert "the server sees only the sum over several clients" not in page


def test_noise_is_in_the_audit() -> None:
    assert build(from_tables(tables({"rtf": {}}))).defenses["gaussian"] == Gaussian(scale=1e-2)
