"""`gradveil train-generator`: a zip of public pictures to a network that says where it comes from."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gradveil import data
from gradveil.audit.split import split_dataset
from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.generators import learn_autoencoder
from gradveil.generators.autoencoder import load_autoencoder
from gradveil.generators.enhancer import load_enhancer
from gradveil.generators.provenance import check_not_trained_on
from gradveil.generators.stored import metadata_of

SMALL = ["--size", "16", "--width", "8", "--epochs", "1", "--batch-size", "8", "--device", "cpu"]


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o022)
    rng = np.random.default_rng(0)
    for number in range(24):
        folder = tmp_path / "pictures" / ("one", "two")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 20, 3), np.uint8)).save(folder / f"{number:02}.png")
    yield tmp_path
    os.umask(before)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def train(kind: str, *more: str, source: str = "pictures", out: str = "network.safetensors") -> int:
    return code("train-generator", kind, "--data", source, *SMALL, "--out", out, *more)


def test_an_autoencoder_that_never_saw_the_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("autoencoder", "--latent", "128", "--skip", "4") == 0
    said = capsys.readouterr()
    assert "18 pictures of pictures, 2 held out, 4 skipped" in said.err
    assert "epoch 1 of 1" in said.err
    assert "autoencoder: " in said.out
    assert " dB, SSIM " in said.out
    network = load_autoencoder("network.safetensors")
    assert (network.latent, network.size) == ((8, 4, 4), (3, 16, 16))
    pictures = data.load("pictures", size=16)
    check_not_trained_on("network.safetensors", split_dataset(pictures, 4, 1).victims.images)
    for other in ({"seed": 1}, {"draw": "first"}):
        with pytest.raises(ConfigError, match=r"of the 4 pictures that are attacked"):
            check_not_trained_on("network.safetensors", split_dataset(pictures, 4, 1, **other).victims.images)
    assert Path("network.safetensors").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("how", "split"),
    [(("--audit-seed", "1"), {"seed": 1}), (("--audit-draw", "first"), {"draw": "first"})],
)
def test_the_victims_of_another_audit_are_skipped(how: tuple[str, ...], split: dict) -> None:
    assert train("autoencoder", "--latent", "128", "--skip", "4", *how) == 0
    victims = split_dataset(data.load("pictures", size=16), 4, 1, **split).victims.images
    check_not_trained_on("network.safetensors", victims)


def test_an_enhancer_of_several_data_sets(capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--data", "photos:limit=12,skip=2", "--precision", "bf16", "--noise", "0.05", "--adversarial", "0.01"]
    assert train("enhancer", *more) == 0
    assert "spoiled: " in capsys.readouterr().out
    report = metadata_of("network.safetensors")
    assert (report["kind"], report["data"], report["skipped"]) == ("enhancer", "pictures + photos", "2")
    assert (report["noise"], report["adversarial"], report["bf16"]) == ("0.05", "0.01", "True")
    images = torch.rand(2, 3, 16, 16)
    assert load_enhancer("network.safetensors")(images).shape == images.shape


def test_an_interrupted_one_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    learn = learn_autoencoder.Reconstruction.learn

    def stopped(self, images, here):
        if here.start == 8:
            raise KeyboardInterrupt
        return learn(self, images, here)

    with monkeypatch.context() as once:
        once.setattr(learn_autoencoder.Reconstruction, "learn", stopped)
        assert train("autoencoder", "--latent", "128") == 130
    assert "interrupted: nothing was saved yet" in capsys.readouterr().err
    assert not Path("network.safetensors").exists()
    assert train("autoencoder", "--latent", "128", "--quiet") == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("autoencodr", [], "train-generator: unknown name 'autoencodr', did you mean 'autoencoder'"),
        ("autoencoder", ["--latent", "100"], "a latent of 100 does not fit pictures of 16 pixels"),
        ("autoencoder", ["--latent", "128", "--noise", "0.1"], "belongs to an enhancer"),
        ("enhancer", ["--noise", "7"], "noise 7.0"),
        ("enhancer", ["--precision", "fp8"], "--precision: unknown name 'fp8'"),
        ("enhancer", ["--skip", "-1"], "--skip: -1 is out of range"),
        ("enhancer", ["--skip", "24"], "24 pictures, of which 24 are skipped"),
        ("enhancer", ["--channels", "2"], "--channels: must be 1 (gray) or 3 (color), got 2"),
        ("enhancer", ["--rate", "0"], "--rate: 0.0 is not possible"),
        ("enhancer", ["--data", "pictures:skip=x"], "skip must be a whole number of 0 or more, got 'x'"),
        ("enhancer", ["--data", "nowhere"], "unknown name 'nowhere'"),
        ("enhancer", ["--data", "photos:colour=3"], "colour"),
        ("enhancer", ["--data-option", "colour=3"], "--data-option: unknown name 'colour'"),
        ("enhancer", ["--out", "network.pt"], "ends in .safetensors"),
    ],
)
def test_what_cannot_work_is_told_in_one_line_and_nothing_is_written(
    kind: str, more: list[str], message: str, capsys: pytest.CaptureFixture[str], desk: Path
) -> None:
    assert train(kind, *more) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
    assert [path.name for path in desk.iterdir()] == ["pictures"]


def test_a_file_that_is_there_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("network.safetensors").write_bytes(b"mine")
    assert train("enhancer") == 2
    assert "exists, choose another name" in capsys.readouterr().err
    assert Path("network.safetensors").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("command", "given", "said"),
    [
        (["train-gan"], ["--seconds", "0"], "--seconds: 0.0 is not possible, give a number above 0"),
        (["train-gan"], ["--critic-width", "0"], "--critic-width: 0 is out of range, give 1 or more"),
        (["train-gan"], ["--seed", "-1"], "--seed: -1 is out of range, give 0 or more"),
        (["train-gan"], ["--avoid", "photoss"], "--avoid: unknown name 'photoss', did you mean 'photos'?"),
        (["train-generator", "autoencoder"], ["--epochs", "0"], "--epochs: 0 is out of range, give 1 or more"),
        (["train-generator", "enhancer"], ["--rate", "nan"], "--rate: nan is not possible, give a number above 0"),
    ],
)
def test_numbers_that_cannot_be_name_their_option(
    tmp_path: Path, capsys, command: list[str], given: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main([*command, "--data", "photos:limit=24", "--out", str(tmp_path / "g.safetensors"), *given])
    report = capsys.readouterr().err
    assert left.value.code == 2
    assert report.startswith(f"error: {said}")
    assert report.count("\n") == 1
    assert not list(tmp_path.glob("g*"))
