"""The account that `gradveil train` tells before and after, against the accountant called by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.dp import epsilon

SMALL = ["train", "--data-option", "limit=24", "--rounds", "1", "--clients", "2", "--batch-size", "8", "--model", "mlp"]


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture
def library() -> None:
    pytest.importorskip("dp_accounting", reason="the extra `dp` is not installed")


@pytest.mark.usefixtures("library")
def test_told_before_and_after_and_kept_in_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve pictures a client, eight a step: rate 2/3, two steps in one epoch, a picture in one of them."""
    out = tmp_path / "run"
    assert called(*SMALL, "--defense", "dpsgd:noise=0.2", "--delta", "1e-4", "--out", str(out)) == 0
    printed = capsys.readouterr()
    (before,) = (line for line in printed.err.splitlines() if line.startswith("privacy: "))
    (after,) = (line for line in printed.out.splitlines() if line.startswith("privacy: "))
    assert before == after
    assert printed.err.index("privacy: ") < printed.err.index("round 1 of 1")
    sampled = epsilon(noise=0.2, sampling_rate=8 / 12, rounds=2, delta=1e-4)
    assert f"epsilon = {sampled.value:.4g} by RDP" in before
    assert "% identified among 1,001" in before
    kept = json.loads((out / "provenance.json").read_text())["privacy"]
    assert kept["said"] == before
    assert kept["sampled"]["rdp"] == sampled.value
    assert kept["sampled"]["steps"] == 2
    assert kept["sampled"]["candidates"] == 1001
    assert "vacuous" not in kept["sampled"]
    assert kept["dealt"]["rdp"] == epsilon(noise=0.2, sampling_rate=1.0, rounds=1, delta=1e-4).value


def test_without_the_library_training_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    # another delta than anywhere else: what was computed before is remembered
    options = ["--defense", "dpsgd:noise=0.7", "--delta", "3e-4", "--out", str(tmp_path / "run")]
    assert called(*SMALL, *options, "--json") == 0
    printed = capsys.readouterr()
    assert "privacy" not in printed.err
    summary = json.loads(printed.out)
    assert summary["privacy"]["said"].startswith("privacy: not accounted: dp_accounting is not installed")
    assert "pip install 'gradveil[dp]'" in summary["privacy"]["reason"]
    assert summary["accuracy"] is not None


def test_other_defenses_have_no_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(*SMALL, "--defense", "gaussian", "--out", str(tmp_path / "run")) == 0
    printed = capsys.readouterr()
    assert "privacy" not in printed.out + printed.err
    assert "privacy" not in json.loads((tmp_path / "run/provenance.json").read_text())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--defense", "dpsgd", "--delta", "0"], "--delta: must be above 0 and below 1, such as 1e-5, got 0.0"),
        (["--defense", "dpsgd", "--delta", "nan"], "--delta: must be above 0 and below 1, such as 1e-5, got nan"),
        (["--defense", "prune", "--delta", "1e-5"], "--delta: belongs to the epsilon of dpsgd and fedcdp"),
    ],
)
def test_a_delta_that_means_nothing_is_refused(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(*SMALL, *options, "--out", str(tmp_path / "run")) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_refused_has_no_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--defense", "dpsgd", "--bn", "batch", "--out", str(tmp_path / "run")]
    assert called(*SMALL, "--model", "resnet20-4", *options) == 2
    error = capsys.readouterr().err
    assert "normalizes by the batch" in error
    assert error.count("\n") == 1


def test_by_flower_it_is_kept_beside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="the extra `flower` is not installed")
    pytest.importorskip("flwr", reason="the extra `flower` is not installed")

    def no_simulation(*_: object) -> None:
        raise ConfigError("nothing is simulated here")

    monkeypatch.setattr("gradveil.flower.train._run", no_simulation)
    out = tmp_path / "run"
    options = ["--defense", "dpsgd:noise=0.2", "--delta", "1e-4", "--engine", "flower", "--out", str(out)]
    assert called(*SMALL, *options) == 2
    kept = json.loads((out / "privacy.json").read_text())
    assert kept["defense"] == "dpsgd"
    assert kept["delta"] == 1e-4
