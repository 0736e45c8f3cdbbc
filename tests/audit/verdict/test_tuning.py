"""What an attack was tuned on is not what it is scored on, and every defense gets as many tries as none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from runs import defended, run_of, undefended
from safetensors.torch import save_file

from gradveil import data
from gradveil.audit.audit import run_audit
from gradveil.audit.tuning import describe_tuning
from gradveil.audit.verdict import judge
from gradveil.cli import main
from gradveil.config import build, from_tables
from gradveil.core.errors import ConfigError
from gradveil.generators.provenance import record_of
from gradveil.report.assumptions import list_assumptions
from gradveil.report.not_tested import list_not_tested

DEFENSES = {"none": {}, "noise": {"name": "gaussian", "scale": 0.1}}


def tables(seed: int, *tuned_on: Path | str, **changes: object) -> dict:
    return {
        "seed": seed,
        "metrics": ["psnr"],
        "convergence": False,
        "lineup": 0,
        "tuned_on": [str(source) for source in tuned_on],
        "scenario": {"model": "mlp", "data": "digits", "data_options": {"size": 8}, "images": 3},
        "defense": DEFENSES,
        "attack": {"linear": {}},
        **changes,
    }


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned") / "run"
    run_audit(build(from_tables(tables(1))), folder)
    return folder


def test_an_audit_of_the_tuned_pictures_is_refused(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = "--data digits --data-option size=8 --model mlp --images 3 --attack linear --metric psnr"
    with pytest.raises(SystemExit) as left:
        main(["audit", *options.split(), "--seed", "1", "--tuned-on", str(tuned), "--out", "run"])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "attacks were tuned on 3 of the 3 pictures that are attacked" in said
    assert "--tuned-on" in said
    assert not Path("run").exists()


def test_one_shared_picture_is_enough(tuned: Path, tmp_path: Path) -> None:
    audit = build(from_tables(tables(1, tuned)))
    other = build(from_tables(tables(2))).scenario.private
    other.images[0], audit.scenario.private.images[1:] = audit.scenario.private.images[0].flip(-1), other.images[1:]
    with pytest.raises(ConfigError, match="tuned on 1 of the 3 pictures"):
        run_audit(audit, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_pictures_are_attacked_and_the_tries_are_counted(tuned: Path, tmp_path: Path) -> None:
    run_audit(build(from_tables(tables(0, tuned))), tmp_path / "run")
    written = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert written["tuning"] == {"pictures": 3, "settings": {"none": 1, "noise": 1}}


def test_only_what_was_tried_on_this_very_defense_counts(tuned: Path) -> None:
    ours = build(from_tables(tables(0))).describe()["defense"]
    stronger = {**ours, "noise": {**ours["noise"], "scale": 0.5}}
    assert describe_tuning([str(tuned)], stronger)["settings"] == {"none": 1, "noise": 0}


def test_a_file_of_hashes_will_do(tmp_path: Path) -> None:
    file = tmp_path / "pictures.safetensors"
    save_file(record_of(data.load("digits", size=8).images), file)
    with pytest.raises(ConfigError, match="tuned on 3 of the 3 pictures"):
        run_audit(build(from_tables(tables(0, file))), tmp_path / "run")


@pytest.mark.parametrize("kind", ["missing", "empty", "no-hashes"])
def test_what_says_nothing_of_pictures_is_refused(kind: str, tmp_path: Path) -> None:
    source = tmp_path / kind
    if kind == "empty":
        source.mkdir()
    if kind == "no-hashes":
        save_file({"x": torch.zeros(1)}, source)
    with pytest.raises(ConfigError, match=kind):
        run_audit(build(from_tables(tables(0, source))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "raised"), [({"none": 3, "d": 2}, True), ({"none": 3, "d": 3}, False), ({}, False)]
)
def test_fewer_tries_than_without_a_defense_are_flagged(settings: dict, raised: bool) -> None:
    run = run_of(undefended(20), defended(20), tuning={"pictures": 9, "settings": settings})
    assert ("tuned-less" in judge(run).flags) is raised


def test_the_page_says_where_settings_were_chosen() -> None:
    tuning = {"tuning": {"pictures": 9, "settings": {"none": 3, "d": 2}}}
    run, plain = run_of(undefended(20), defended(20), **tuning), run_of(undefended(20), defended(20))
    (effort,) = (one.value for one in list_assumptions(run, judge(run)) if one.name == "Compute budget")
    assert effort.endswith("; settings tried on 9 other pictures: none 3, d 2")
    assert any("tuned_on" in line for line in list_not_tested(plain, judge(plain)))
    assert not any("tuned_on" in line for line in list_not_tested(run, judge(run)))
