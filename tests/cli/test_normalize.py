"""`--normalize`: constants for a model that brings none, of simulated clients and of captured ones."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from gradveil.capture import Capture, save
from gradveil.cli import main
from gradveil.config import build, from_tables
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.data import load
from gradveil.models.normalize import constants_of
from gradveil.search.settings import SearchSettings
from gradveil.search.settings import check_settings as check_search
from gradveil.tradeoff.settings import StudySettings
from gradveil.tradeoff.study import load_study
from gradveil.train.settings import TrainSettings

NET = """
from torch import nn
def make(classes, shape):
    return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(4 * 14 * 14, classes))
"""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PICTURES = ["--data", "photos", "--data-option", "size=16", "--data-option", "count=30"]
QUICK = ["--attack", "dlg:steps=2,restarts=1", "--budget", "quick", "--device", "cpu", "--quiet"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code


def plain_loop(images: Tensor | None = None, labels: Tensor | None = None) -> Capture:
    """A client of plain torch, whose transform normalizes; the first built-in photographs unless others are given."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(4 * 14 * 14, 8))
    sent = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    data = load("photos", size=16, count=30)
    images, labels = (data.images[:2], data.targets[:2].argmax(1)) if images is None else (images, labels)
    mean, std = (torch.tensor(part).view(-1, 1, 1) for part in (MEAN, STD))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    F.cross_entropy(model((images - mean) / std), labels).backward()
    optimizer.step()
    update = {name: sent[name] - tensor for name, tensor in model.state_dict().items()}
    return Capture(
        weights=sent, updates={"a": update}, round=0, training=LocalTraining(rate=0.1), examples={"a": 2},
        shape=(3, 16, 16), classes=8, normalization=None,
    )  # fmt: skip


@pytest.mark.parametrize(("normalize", "expected"), [("imagenet", "reproduced"), ("none", "not reproduced")])
def test_a_client_that_normalizes_in_its_transform_is_replayed(normalize: str, expected: str) -> None:
    save("c.safetensors", plain_loop())
    given = ["--capture", "c.safetensors", "--model", "net.py:make", "--normalize", normalize]
    assert run("audit", *given, *PICTURES, *QUICK, "--lineup", "off", "--out", "run") == 0
    found = json.loads(Path("run/verdict.json").read_text())["provenance"]
    assert found["capture"]["replay"]["a"].startswith(f"{expected}, relative error")
    noted = any("normalization is null" in note for note in found["capture"]["notes"])
    assert noted == (normalize == "none")


@pytest.mark.parametrize("resize", ["bicubic", "lanczos"])
def test_a_client_that_resizes_as_pillow_does_is_replayed(resize: str) -> None:
    """`Image.resize((16, 16))`, the commonest line: bicubic, and nothing is cropped."""
    draw = np.random.default_rng(0)
    for k in range(8):
        Path(f"mine/class{k}").mkdir(parents=True)
        Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8)).save(f"mine/class{k}/x.png")
    fed = [np.asarray(Image.open(f"mine/class{k}/x.png").resize((16, 16))) for k in range(2)]
    save("c.safetensors", plain_loop(torch.from_numpy(np.stack(fed)).permute(0, 3, 1, 2) / 255, torch.arange(2)))
    given = ["--capture", "c.safetensors", "--model", "net.py:make", "--normalize", "imagenet", "--data", "mine"]
    options = [f"--data-option={one}" for one in ("size=16", f"resize={resize}", "crop=none")]
    assert run("audit", *given, *options, *QUICK, "--lineup", "off", "--out", "run") == 0
    replayed = json.loads(Path("run/verdict.json").read_text())["provenance"]["capture"]["replay"]["a"]
    assert replayed.startswith("reproduced" if resize == "bicubic" else "not reproduced")


def test_a_capture_is_shown_with_the_constants(capsys: pytest.CaptureFixture[str]) -> None:
    save("c.safetensors", plain_loop())
    assert run("capture", "show", "c.safetensors", "--model", "net.py:make", "--normalize", "imagenet") == 0
    assert "normalization is null" not in capsys.readouterr().out


@pytest.mark.parametrize("model", ["net.py:make", "lenet"])
def test_weights_fit_as_they_were_trained(model: str) -> None:
    scenario = {"model": model, "data": "photos", "data_options": {"size": 16, "count": 40}, "images": 2}
    bare = build(from_tables({"scenario": {**scenario, "normalize": "none"}})).scenario.model
    save_file(bare.state_dict(), "w.safetensors")
    named = build(from_tables({"scenario": {**scenario, "weights": "w.safetensors", "normalize": "imagenet"}}))
    own = named.scenario.model
    assert list(own.state_dict()) == list(bare.state_dict())
    assert not any(name.startswith("normalize") for name in bare.state_dict())
    images = load("photos", size=16, count=3).images
    mean, std = (torch.tensor(part).view(-1, 1, 1) for part in (MEAN, STD))
    assert torch.allclose(own.eval()(images), bare.eval()((images - mean) / std), atol=1e-6)
    assert tuple(constants_of(own, 3)[0].tolist()) == pytest.approx(MEAN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("imagnet", "did you mean 'imagenet'"),
        ("0.5,0.5/0.2", "as many deviations above 0 as means"),
        ("0.5/0", "deviations above 0"),
        ("a,b/1,1", "expected imagenet, cifar10, cifar100, none or numbers"),
        ("nan/1", "finite numbers"),
        ("0.5/0.5", "has 1 means, the pictures have 3 channels"),
    ],
)
def test_what_cannot_be_constants_is_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("audit", "--normalize", text, *PICTURES, *QUICK, "--out", "run") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --normalize: ")
    assert message in error
    assert error.count("\n") == 1
    assert not Path("run").exists()


def test_constants_of_the_catalogue_are_not_put_before_others() -> None:
    scenario = {"model": "lenet", "data": "photos", "data_options": {"size": 16, "count": 40}, "images": 2}
    model = build(from_tables({"scenario": scenario})).scenario.model
    save_file(model.state_dict(), "w.safetensors")
    with pytest.raises(ConfigError, match=r"the weights hold constants of their own, leave `normalize` out"):
        build(from_tables({"scenario": {**scenario, "weights": "w.safetensors", "normalize": "imagenet"}}))


def test_a_capture_with_constants_takes_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    from gradveil.capture import simulate

    save("c.safetensors", replace(simulate(options={"size": 16}), producer="test"))
    assert run("audit", "--capture", "c.safetensors", "--normalize", "imagenet", *QUICK, "--out", "run") == 2
    expected = "error: --normalize: the model normalizes its pictures itself already, leave it out\n"
    assert capsys.readouterr().err == expected
    assert not Path("run").exists()


def test_check_model_takes_the_constants(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check-model", "net.py:make", "--normalize", "imagenet", *PICTURES) == 0
    assert run("check-model", "net.py:make", "--normalize", "0.5/0.5", *PICTURES) == 2
    assert capsys.readouterr().err.startswith("error: --normalize: 0.5/0.5 has 1 means")


HALF = "0.5,0.5,0.5/0.25,0.25,0.25"


def test_training_normalizes_and_its_checkpoint_is_audited_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    few = [*PICTURES, "--rounds", "1", "--clients", "2", "--model", "net.py:make", "--device", "cpu"]
    for name, more in (("plain", []), ("half", ["--normalize", HALF])):
        assert not run("train", *few, *more, "--out", name)
    printed = capsys.readouterr().out
    assert f"--normalize {HALF}" in printed
    plain, half = (load_file(f"{name}/checkpoints/round-000001.safetensors") for name in ("plain", "half"))
    assert set(plain) == set(half), "weights keep their names"
    assert not torch.allclose(plain["0.weight"], half["0.weight"])
    config = tomllib.loads(Path("half/config.toml").read_text())
    assert config["normalize"] == HALF
    assert "normalize" not in tomllib.loads(Path("plain/config.toml").read_text())


@pytest.mark.parametrize("command", ["train", "search", "tradeoff"])
@pytest.mark.parametrize(("text", "said"), [("imagenets", "did you mean 'imagenet'"), ("0.5/0.5", "has 1 means")])
def test_constants_that_cannot_be_are_refused_everywhere(
    command: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, *PICTURES, "--model", "net.py:make", "--normalize", text, "--out", "run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --normalize: ")
    assert said in line
    assert not Path("run").exists()


def test_search_and_study_put_the_constants_in_front() -> None:
    options = {"size": 16, "count": 30}
    scenario, _ = check_search(SearchSettings(model="net.py:make", normalize=HALF, data_options=options))
    assert scenario.normalize == HALF
    study = StudySettings(model="net.py:make", normalize=HALF, data_options={"size": 16, "count": 60})
    _, models = load_study(study)
    for model in models:
        assert [x.tolist() for x in constants_of(model, 3)] == [[0.5] * 3, [0.25] * 3]
    assert "normalize" in study.to_tables()["tradeoff"]
    assert "normalize" not in StudySettings().to_tables()["tradeoff"]
    assert "normalize" not in SearchSettings().to_tables()["search"]


def test_flower_does_not_take_other_constants() -> None:
    with pytest.raises(ConfigError, match="normalize: imagenet needs `engine = local`"):
        TrainSettings(engine="flower", normalize="imagenet")
