"""`gradveil train-inverter`: from the settings of an audit to a network that this audit takes, and no other."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gradveil.cli import main
from gradveil.generators import learn_inverter

AUDIT = ["--data", "digits", "--model", "mlp", "--gallery", "150", "--images", "6"]
TRAIN = ["--sketch", "48", "--hidden", "64", "--epochs", "6", "--device", "cpu"]


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def train(*more: str, out: str = "a.safetensors") -> int:
    return code("train-inverter", *AUDIT, *TRAIN, "--out", out, *more)


def audit(*more: str, out: str = "run") -> int:
    attack = ["--defense", "none", "--attack", "learned-inverter:inverter=a.safetensors", "--lineup", "off"]
    return code("audit", *AUDIT, *attack, "--out", out, "--quiet", *more)


def test_from_the_settings_of_an_audit_to_its_attack(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    told = capsys.readouterr()
    assert "204 public pictures of digits, 0 left out as alike" in told.err
    assert "simulated 388 of 388 clients, 0 s left" in told.err
    assert "epoch 6 of 6" in told.err
    assert "blank: " in told.out
    assert "use it as learned-inverter:inverter=a.safetensors" in told.out
    assert Path("a.safetensors").stat().st_mode & 0o077 == 0
    assert audit() == 0
    lines = [json.loads(line) for line in Path("run/journal.jsonl").read_text().splitlines()]
    records = [line.get("record", line) for line in lines]
    assert all(record["status"] == "ok" for record in records if "status" in record)
    capsys.readouterr()
    assert audit("--seed", "1", out="other") == 2
    assert "a.safetensors: was trained on" in capsys.readouterr().err
    assert not Path("other").exists()


def test_another_model_is_refused_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--quiet") == 0
    assert audit("--model", "lenet") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "--attack: learned-inverter: a.safetensors was trained through another model" in told.err
    assert len(told.err.splitlines()) == 1


def test_as_json_through_a_defense_with_more_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--defense", "prune:ratio=0.9", "--public", "digits:limit=30", "--copies", "1", "--json") == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert told.err == ""
    assert found["defense"] == "prune:ratio=0.9"
    assert 204 < found["public"] + found["alike"] == 234
    assert {"psnr", "psnr_before", "seconds", "file"} <= set(found)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--defense", "nope"), "--defense: nope.name: unknown name 'nope'"),
        (("--sketch", "1"), "--sketch: must be between 8 and 65536, got 1"),
        (("--decoder", "x"), "--decoder: must be perceptron or convolutions, got 'x'"),
        (("--gallery", "5000", "--images", "300"), "public pictures are too few, give 20 or more"),
        (("--public", "photos:limit=20"), "--public: photos: has"),
        (("--public", "x"), "--public: unknown name 'x'"),
        (("--public", "digits:x=1"), "--public: x: unknown key"),
        (("--epochs", "0"), "--epochs: 0 is out of range"),
        (("--out", "a.pt"), "--out: a.pt: expected a file name that ends in .safetensors"),
    ],
)
def test_what_cannot_be_is_one_line(more: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(*more) == 2
    told = capsys.readouterr().err.splitlines()
    assert line in told[-1]
    assert [one for one in told if one.startswith("error: ")] == told[-1:]
    assert not list(Path().glob("*.safetensors"))


def test_what_was_simulated_outlives_an_interruption(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(learn_inverter, "fit", stop)
        assert train() == 130
    assert "interrupted: the last checkpoint is kept, give the same command again" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(learn_inverter.Simulation, "simulate", stop)
        assert train() == 0  # nothing is simulated a second time
    assert {path.name for path in Path().iterdir()} == {"a.safetensors"}


def test_it_is_a_stage_of_the_default_where_a_file_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--quiet", "--images", "1") == 0
    attack = ["--attack", "autoattack:inverter=a.safetensors,steps=5", "--defense", "none", "--defense", "prune"]
    run = ["--images", "1", "--budget", "quick", "--lineup", "off", "--out", "run", "--quiet"]
    assert code("audit", *AUDIT, *run, *attack) == 0
    config = Path("run/config.toml").read_text()
    assert "[attack.learned-inverter]" in config
    assert "[attack.learned-inverter-search]" in config
    records = [json.loads(line) for line in Path("run/journal.jsonl").read_text().splitlines()]
    text = json.dumps(records)
    assert '"attack": "learned-inverter"' in text
    assert code("audit", *AUDIT, *run[:-3], "--out", "plain", "--quiet", "--attack", "autoattack:steps=5") == 0
    assert "learned-inverter" not in Path("plain/config.toml").read_text()
