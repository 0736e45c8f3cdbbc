"""`gradveil audit --seconds` from the command line to the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradveil.audit import audit as module
from gradveil.cli import main
from gradveil.config import AuditConfig
from gradveil.config.audit import audit
from gradveil.config.load import dumps, from_tables
from gradveil.config.reproduce import reproduce
from gradveil.core.compute import Compute
from gradveil.experiment import journal

TINY = ["audit", "--data", "digits", "--data-option", "size=8", "--model", "mlp", "--images", "3", "--gallery", "20"]
SEARCH = ["--attack", "invertgrad:steps=64,restarts=1", "--no-convergence", "--quiet"]
LONG = "10000"  # seconds: all of it


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "measure_step", lambda *_: 1.0)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exited:
        main(arguments)
    return exited.value.code if isinstance(exited.value.code, int) else 1


def test_the_whole_of_it(tmp_path: Path) -> None:
    assert code(*TINY, *SEARCH, "--seconds", LONG, "--out", "run") == 0
    assert code(*TINY, *SEARCH, "--out", "plain") == 0
    found, plain = (json.loads((tmp_path / name / "verdict.json").read_text()) for name in ("run", "plain"))
    assert found["missing"] == plain["missing"] == 0
    assert found["provenance"]["seconds"] == float(LONG)
    assert found["provenance"]["spent"] > 0
    assert found["provenance"]["plan"] == plain["provenance"]["plan"]
    assert found["findings"][0]["reached"]["attacks"] == [{"attack": "invertgrad", "clients": 3, "reached": {"1": 3}}]
    assert "reached" not in plain["findings"][0]
    assert (tmp_path / "run" / "config.toml").read_bytes() == (tmp_path / "plain" / "config.toml").read_bytes()
    assert (tmp_path / "run" / "seal.json").exists()


def test_another_time_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    for seconds in ("0.001", LONG):
        assert code(*TINY, *SEARCH, "--seconds", seconds, "--out", "run") == 0
    kept = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert kept["seconds"] == 0.001
    assert [one["seconds"] for one in kept["resumed"]] == [float(LONG)]
    assert code("verify", "run") == 0


def test_any_trial_is_computed_again_to_the_last_bit(tmp_path: Path) -> None:
    assert code(*TINY, *SEARCH, "--seconds", LONG, "--out", "run") == 0
    records = {(r.attack, r.control or r.attacker): r.key for r in journal.read(tmp_path / "run" / "journal.jsonl")}
    assert {attack for attack, _ in records} >= {"invertgrad", "invertgrad@1/4", "invertgrad@1/16", "line-up"}
    for key in records.values():
        assert reproduce(tmp_path / "run", key).identical, key


@pytest.mark.more
def test_workers_do_the_same_and_end_in_time(tmp_path: Path) -> None:
    audit(tmp_path / "alone", CONFIG, seconds=float(LONG))
    audit(tmp_path / "spread", CONFIG, seconds=float(LONG), compute=Compute(workers=2))
    alone, spread = ({r.key for r in journal.read(tmp_path / name / "journal.jsonl")} for name in ("alone", "spread"))
    assert {key for key in alone if "@1/" not in key} == {key for key in spread if "@1/" not in key}
    cut = audit(tmp_path / "cut", CONFIG, seconds=1e-3, compute=Compute(workers=2))
    assert cut.word in ("inconclusive", "not evaluated")


def test_the_file_may_say_it_and_it_is_no_part_of_what_is_audited() -> None:
    given = from_tables({"seconds": 60.0, "scenario": {"attacker": "curious"}})
    assert given.seconds == 60.0
    assert "seconds" not in dumps(given)
    assert "seconds" not in given.declared
    assert given == from_tables({"scenario": {"attacker": "curious"}})


@pytest.mark.parametrize("seconds", ["0", "-5", "nan"])
def test_bad_input_is_one_line(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*TINY, "--seconds", seconds, "--out", "run") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("run").exists()


def make_config() -> AuditConfig:
    tables = {
        "scenario": {"data": "digits", "data_options": {"size": 8}, "model": "mlp", "images": 3},
        "gallery": 20,
        "convergence": False,
        "attack": {"invertgrad": {"steps": 64, "restarts": 1}},
    }
    return from_tables(tables)


CONFIG = make_config()
