"""The account that `gradveil train` tells before and after, against the accountant called by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.defenses import parse_defense
from gradveil.dp import epsilon
from gradveil.dp.allowance import allowance_of

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


LIMITED = [*SMALL, "--defense", "dpsgd:noise=2.0", "--bn", "eval"]


def limited(most: float, out: Path, *more: str, rounds: int = 6) -> int:
    arguments = [
        word if word != "1" or LIMITED[at - 1] != "--rounds" else str(rounds) for at, word in enumerate(LIMITED)
    ]
    return called(*arguments, "--epsilon-at-most", str(most), "--out", str(out), *more)


def rounds_in(out: Path) -> int:
    return len((out / "journal.jsonl").read_text().splitlines())


def test_the_training_ends_before_the_round_that_is_too_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A picture is in one noisy step a round."""
    allowed = allowance_of(parse_defense("dpsgd:noise=2.0"), 1, 4.2, 1e-5).releases
    assert 1 < allowed < 6
    out = tmp_path / "run"
    assert limited(4.2, out) == 0
    printed = capsys.readouterr()
    line = f"round {allowed + 1} is refused: it would raise epsilon to "
    assert sum(line in one for one in printed.err.splitlines()) == 1
    assert sum(line in one for one in printed.out.splitlines()) == 1
    assert rounds_in(out) == allowed
    assert max(int(path.stem.rpartition("-")[2]) for path in (out / "checkpoints").iterdir()) == allowed


def test_a_larger_budget_goes_on_and_a_smaller_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, whole = tmp_path / "run", tmp_path / "whole"
    assert limited(4.2, out, "--checkpoints", "6", "--quiet") == 0
    assert limited(50.0, out, "--checkpoints", "6", "--quiet") == 0
    assert limited(50.0, whole, "--checkpoints", "6", "--quiet") == 0
    assert rounds_in(out) == 6
    gone_on, at_once = (load_file(folder / "state.safetensors") for folder in (out, whole))
    assert all(torch.equal(x, at_once[name]) for name, x in gone_on.items())
    kept, expected = (json.loads((folder / "provenance.json").read_text())["privacy"] for folder in (out, whole))
    assert kept == expected, "of all rounds that were played"
    capsys.readouterr()
    assert limited(4.2, out, "--checkpoints", "6") == 2
    (line,) = (one for one in capsys.readouterr().err.splitlines() if one.startswith("error: "))
    assert line.startswith("error: --epsilon-at-most: 6 rounds are played already, and round ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--defense", "dpsgd:noise=0.1", "--epsilon-at-most", "1"), "round 1 is refused: it would raise epsilon to "),
        (("--defense", "prune", "--epsilon-at-most", "1"), "no epsilon can be kept: "),
        (("--defense", "dpsgd", "--epsilon-at-most", "-1"), "must be above 0 and at most 1e+06, got -1"),
        (("--defense", "dpsgd", "--epsilon-at-most", "nan"), "must be above 0 and at most 1e+06, got nan"),
    ],
)
def test_what_cannot_be_kept_is_one_line_and_nothing_is_written(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert called(*SMALL, *arguments, "--out", str(out)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: --epsilon-at-most: {said}")
    assert not out.exists()


@pytest.mark.flower
def test_flower_ends_before_that_round_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allowed = allowance_of(parse_defense("dpsgd:noise=2.0"), 1, 4.2, 1e-5).releases
    out = tmp_path / "run"
    assert limited(4.2, out, "--engine", "flower") == 0
    assert f"round {allowed + 1} is refused" in capsys.readouterr().out
    assert len((out / "rounds.jsonl").read_text().splitlines()) == allowed
