"""`gradveil doctor`: findings, exit codes, the command, and what stops an audit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import gradveil
from gradveil.cli import app
from gradveil.core.local_training import LocalTraining
from gradveil.doctor.data import count_copies
from gradveil.models import MODELS

NETS = """
import torch
from torch import nn
def make(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(num_classes))
class Blind(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(classes))
    def forward(self, x):
        return self.bias.expand(len(x), -1)
def blind(classes):
    return Blind(classes)
class Broken(Blind):
    def forward(self, x):
        return self.bias.expand(len(x), -1) / 0 * 0
def broken(classes):
    return Broken(classes)
class Dead(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = nn.Linear(3 * 16 * 16, classes)
    def forward(self, x):
        with torch.no_grad():
            still = self.fc(x.flatten(1))
        return still + 0 * self.fc(x.flatten(1))
def dead(classes):
    return Dead(classes)
"""
DATA = ["--data", "photos", "--data-option", "size=16", "--data-option", "count=120", "--images", "2"]


@pytest.fixture
def nets(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NETS)
    return str(tmp_path / "net.py")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        gradveil.cli.main(list(arguments))  # type: ignore[attr-defined]
    out = capsys.readouterr()
    return int(stop.value.code or 0), out.out, out.err


def test_all_is_well_with_the_built_in_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--model", "lenet", *DATA, "--budget", "quick", "--defense", "none")
    assert code == 0
    assert "0 problems found" in out
    for topic in ("model", "weights", "normalization", "data", "training", "signal", "attacks", "line-up", "time"):
        assert f" {topic}: " in out
    command = "gradveil audit --model lenet --data photos --data-option count=120 --data-option size=16 --images 2"
    assert command in out
    assert "do: set --weights" in out


def test_json_has_what_why_and_do(nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--model", f"{nets}:make", *DATA, "--defense", "none", "--json")
    found = json.loads(out)
    assert (code, found["well"]) == (0, True)
    dropout = next(one for one in found["findings"] if "dropout" in one["what"])
    assert dropout["level"] == "note"
    assert "--dropout on" in dropout["do"]
    assert any("num_classes=8" in one["what"] for one in found["findings"])


@pytest.mark.parametrize(
    ("factory", "expected"),
    [("blind", "the same for every picture"), ("broken", "not finite"), ("dead", "gradient is zero everywhere")],
)
def test_what_is_hopeless_is_a_problem_and_stops_an_audit(
    nets: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, factory: str, expected: str
) -> None:
    code, out, _ = run(capsys, "doctor", "--model", f"{nets}:{factory}", *DATA)
    assert code == 1
    assert out.startswith("PROBLEM: signal: ")
    assert expected in " ".join(out.split())
    folder = tmp_path / "run"
    code, _, err = run(capsys, "audit", "--model", f"{nets}:{factory}", *DATA, "--out", str(folder))
    assert (code, folder.exists()) == (2, False)
    assert expected in err
    assert "--no-doctor" in err


def test_weights_of_another_model_are_a_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_file(MODELS["mlp"](classes=8, shape=(3, 16, 16), seed=0).state_dict(), tmp_path / "w.safetensors")
    code, out, _ = run(capsys, "doctor", "--model", "lenet", "--weights", str(tmp_path / "w.safetensors"), *DATA)
    assert code == 1
    assert out.startswith("PROBLEM: weights:")
    assert "not the weights of this model" in " ".join(out.split())


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "doctor", "--data", "nowhere/")
    assert (code, out) == (2, "")
    assert err.startswith("error: --data: unknown name 'nowhere/'")
    assert err.count("\n") == 1


def test_a_capture_that_replays_and_one_that_does_not(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = {"size": 16, "count": 120}
    training = LocalTraining(rate=0.05, steps=3)
    round_ = gradveil.Capture.simulate(options=options, clients=2, examples=2, training=training)
    good, bad = round_.save(tmp_path / "good.safetensors"), tmp_path / "bad.safetensors"
    replace(round_, training=replace(training, steps=1)).save(bad)
    data = ["--data", "photos", "--data-option", "size=16", "--data-option", "count=120"]
    code, out, _ = run(capsys, "capture", "check", str(good), *data)
    assert code == 0
    assert "reproduce the updates of client-0, client-1" in out
    code, out, _ = run(capsys, "capture", "check", str(bad), *data)
    assert code == 1
    assert "the client took 3 local steps" in " ".join(out.split())
    assert "training.steps = 3" in out


@pytest.mark.more
def test_the_library_says_the_same() -> None:
    found = gradveil.diagnose(
        model="lenet", data="photos", data_options={"size": 16, "count": 120}, batch_size=4, defenses=["none"],
        training=LocalTraining(optimizer="adam", rate=1e-3, steps=2), budget="quick",
    )  # fmt: skip
    assert found.is_well
    whats = [one.what for one in found.findings]
    assert any("optimizer adam" in what and "2 steps" in what for what in whats)
    assert any(what.startswith("linear does not apply") for what in whats)


def test_copies_are_counted() -> None:
    images = torch.rand(5, 3, 8, 8)
    assert count_copies(torch.cat([images, images[:2]])) == 2
    assert count_copies(images) == 0


def test_the_command_is_one_of_the_commands() -> None:
    assert "doctor" in {command.name for command in app.registered_commands}
