"""`gradveil train`, from the command line to checkpoints that an audit takes."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gradveil.attacks.invertgrad import invertgrad
from gradveil.audit.audit import Audit
from gradveil.cli import main
from gradveil.cli.train import read_checkpoints
from gradveil.config import build
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.train.run import train
from gradveil.train.settings import Federation, TrainSettings

SMALL = ["train", "--data-option", "limit=64", "--rounds", "4", "--clients", "4", "--batch-size", "8"]


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_from_nothing_to_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert called(*SMALL) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("accuracy: ") and line.endswith("after 4 rounds") for line in lines)
    command = next(line for line in lines if line.startswith("go on with: gradveil audit "))
    (run,) = (tmp_path / "runs").iterdir()
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == [f"round-{n:06d}.safetensors" for n in (1, 2, 3, 4)]
    assert (run / "state.safetensors").stat().st_mode & 0o077 == 0
    audited: list[Any] = []
    monkeypatch.setattr(
        sys.modules["gradveil.cli.audit"], "run_and_report", lambda config, *_: audited.append(build(config))
    )
    assert called(*shlex.split(command.removeprefix("go on with: gradveil "))) == 0
    assert audited[0].scenario.trained


def test_json_and_going_on(tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "run")
    for _ in range(2):
        assert called(*SMALL, "--out", out, "--checkpoints", "2,4", "--evaluate-every", "2", "--json") == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["rounds"] == 4
        assert set(printed["checkpoints"]) == {"2", "4"}
        assert printed["void"] == 0
        assert [one["round"] for one in printed["curve"]] == [2, 4]
    assert called(*SMALL, "--out", out, "--checkpoints", "2,4", "--evaluate-every", "2", "--rate", "0.1") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "holds another run (federation.rate is 0.05 there, 0.1 here)" in error


def test_epochs_are_rounds_of_fedsgd(tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "run")
    plain = ["train", "--data-option", "limit=64", "--clients", "4", "--batch-size", "8"]
    assert called(*plain, "--method", "fedsgd", "--epochs", "3", "--out", out, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["rounds"] == 6
    assert [one["round"] for one in printed["curve"]] == [2, 4, 6]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--model", "lenett"], "--model: unknown name 'lenett', did you mean 'lenet'?"),
        (["--data", "photoss"], "unknown name 'photoss', did you mean 'photos'?"),
        (["--defense", "prun"], "--defense"),
        (["--defense", "prune:ratio=2"], "--defense"),
        (["--method", "fedag"], "--method: unknown name 'fedag', did you mean 'fedavg'?"),
        (["--split", "dirichlet:x"], "--split: must be iid, dirichlet:ALPHA or classes:N"),
        (["--clients", "0"], "--clients: must be 1 to"),
        (["--clients", "1000"], "clients: must be at most 64 (the number of pictures), got 1000"),
        (["--per-round", "11"], "--per-round"),
        (["--bn", "none"], "--bn: unknown name 'none'"),
        (["--rate", "nan"], "--rate: must be above 0 and finite, got nan"),
        (["--momentum", "1"], "--momentum: must be 0 or more and below 1"),
        (["--epochs", "2"], "--epochs: replaces --rounds, leave one"),
        (["--engine", "ray"], "--engine: unknown name 'ray'"),
        (["--device", "tpu"], "--device"),
        (["--precision", "half"], "--precision"),
        (["--checkpoints", "often"], "--checkpoints: must be a number, or rounds"),
        (["--checkpoints", "2,9"], "--checkpoints: must be rounds of 1 to 4, got 9"),
        (["--data-option", "split=test"], "--data-option: training uses the splits"),
        (["--out", "a/../b"], "--out"),
        (["--chunk", "0"], "--chunk"),
        (["--evaluate-every", "-1"], "--evaluate-every: must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    wrong: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert called(*SMALL, *wrong) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_checkpoints_are_evenly_spaced() -> None:
    assert TrainSettings(checkpoints=4).rounds_to_save(100) == (25, 50, 75, 100)
    assert TrainSettings(checkpoints=3).rounds_to_save(2) == (1, 2)
    assert read_checkpoints("0,4") == (0, 4)
    with pytest.raises(ConfigError, match="must be rounds of 1 to 20, got 0"):
        TrainSettings(checkpoints=(0, 4))


def test_the_library_does_what_the_command_does(tmp_path: Path) -> None:
    assert called(*SMALL, "--quiet", "--out", str(tmp_path / "one"), "--checkpoints", "4") == 0
    few = Federation(clients=4, rounds=4, batch_size=8, rate=0.05, momentum=0.9, batchnorm="batch-shared")
    settings = TrainSettings(data_options={"limit": 64}, federation=few, checkpoints=4)
    trained = train(tmp_path / "two", settings)
    assert [one.round for one in trained.curve] == [1, 2, 3, 4]
    for name in ("config.toml", "checkpoints/round-000004.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--seed", "-1"], "--seed: must be 0 to 2^63"),
        (["--per-round", "0"], "--per-round: must be 1 to 4 (the number of clients), got 0"),
        (["--weight-decay", "-1"], "--weight-decay: must be 0 or more and finite, got -1.0"),
        (
            ["--topology", "gossip", "--neighbors", "random:4"],
            "--neighbors: must be at most random:3 (3 other clients), got random:4",
        ),
        (
            ["--method", "fedsgd", "--local-epochs", "3"],
            "--local-epochs: with --method fedsgd a client takes one batch",
        ),
        (["--engine", "flowr"], "--engine: unknown name 'flowr', did you mean 'flower'?"),
        (["--engine", "flower", "--precision", "bf16"], "--precision: bf16 needs --engine local"),
        (
            ["--engine", "flower", "--model", "net.py:make"],
            "--model: --engine flower trains models of the catalogue only",
        ),
        (["--data", "photoss"], "--data: unknown name 'photoss', did you mean 'photos'?"),
        (["--data-option", "sise=3"], "--data-option: sise: unknown key, did you mean 'size'?"),
        (["--clients", "100"], "--clients: must be at most 64 (the number of pictures), got 100"),
        (["--split", "classes:9"], "--split: with 8 classes it must be classes:2 to classes:8, got 9"),
        (["--clients", "many"], "--clients: 'many' is not a valid integer, see gradveil train --help"),
        (["--clints", "3"], "--clints: no such option, did you mean --clients, see gradveil train --help"),
    ],
)
def test_what_cannot_be_is_one_line_that_begins_with_the_option(
    tmp_path: Path, capsys, given: list[str], said: str
) -> None:
    assert called(*SMALL, "--out", str(tmp_path / "run"), *given) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {said}")
    assert printed.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_defense_that_refuses_the_model_leaves_no_folder(tmp_path: Path, capsys) -> None:
    """Clients normalize by the batch although the model as shared does not."""
    asked = ["--model", "convnet8", "--defense", "dpsgd", "--out", str(tmp_path / "run")]
    assert called(*SMALL, *asked) == 2
    assert "normalizes by the batch" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_epochs_are_at_least_one(tmp_path: Path, capsys) -> None:
    assert called("train", "--method", "fedsgd", "--epochs", "0", "--out", str(tmp_path / "run")) == 2
    assert capsys.readouterr().err == "error: --epochs: must be at least 1, got 0\n"


def test_what_precode_has_trained_is_what_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    out = tmp_path / "run"
    assert called(*SMALL, "--defense", "precode:size=8", "--out", str(out), "--checkpoints", "1") == 0
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("go on with: "))
    audited: list[Audit] = []

    def stop(audit: Audit, *_: object) -> None:
        audited.append(audit)
        raise ConfigError("enough")

    monkeypatch.setattr("gradveil.audit.audit.run_audit", stop)
    assert called(*shlex.split(command.removeprefix("go on with: gradveil ")), "--defense", "none") == 2
    assert "precode has changed, and that model is what none is audited on too" in capsys.readouterr().err
    (audit,) = audited
    (path,) = (out / "checkpoints").iterdir()
    kept = load_file(path)
    seen, _ = observe(audit.scenario, audit.defenses["precode"], invertgrad(), Seed())
    sent = seen.model.state_dict()
    assert sent.keys() == kept.keys()
    assert [name for name in kept if not torch.equal(sent[name], kept[name])] == []
    assert any(name.endswith("bottleneck.encoder.weight") for name in kept)
