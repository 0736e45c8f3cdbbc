"""The loop: interrupted or not the same weights, held-out pictures held out, copies of the attacked left out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.generators import training
from gradveil.generators.autoencoder import load_autoencoder
from gradveil.generators.learn_autoencoder import train_autoencoder
from gradveil.generators.learn_enhancer import Task, train_enhancer
from gradveil.generators.pictures import PublicPictures, Source, batches, public_pictures
from gradveil.generators.provenance import picture_hashes, trained_on
from gradveil.generators.stored import metadata_of
from gradveil.generators.training import Course, warmth

COURSE = Course(epochs=3, batch_size=8, rate=2e-3, save_every=0.0)
RNG = np.random.default_rng(3)


def noise(count: int, size: int = 16) -> torch.Tensor:
    return torch.from_numpy(RNG.integers(0, 256, (count, 3, size, size), np.uint8))


@pytest.fixture(scope="module")
def pictures() -> PublicPictures:
    return PublicPictures(name="noise", train=noise(16), held=noise(3), skipped=0, alike=0)


def interrupted_after(epochs: int):
    def stop(progress: training.Progress) -> None:
        if progress.epoch > epochs:
            raise KeyboardInterrupt

    return stop


TRAINERS = {
    "autoencoder": lambda *given, **more: train_autoencoder(*given, latent=128, width=8, **more),
    "enhancer": lambda *given, **more: train_enhancer(*given, width=4, task=Task(adversarial=0.1), **more),
}


@pytest.mark.parametrize("kind", TRAINERS)
def test_interrupted_it_ends_with_the_same_weights(kind: str, pictures: PublicPictures, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    report = TRAINERS[kind](pictures, whole, course=COURSE)
    for epochs in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            TRAINERS[kind](pictures, parts, course=COURSE, on_epoch=interrupted_after(epochs))
        assert not parts.exists()
        assert (tmp_path / "parts.safetensors.resume").is_file()
    epochs: list[int] = []
    again = TRAINERS[kind](pictures, parts, course=COURSE, on_epoch=lambda progress: epochs.append(progress.epoch))
    assert epochs == [3]
    assert report == again
    one, two = load_file(whole), load_file(parts)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert {path.name for path in tmp_path.iterdir()} == {"whole.safetensors", "parts.safetensors"}


def test_a_checkpoint_of_another_training_is_refused(pictures: PublicPictures, tmp_path: Path) -> None:
    out = tmp_path / "a.safetensors"
    with pytest.raises(KeyboardInterrupt):
        TRAINERS["autoencoder"](pictures, out, course=COURSE, on_epoch=interrupted_after(1))
    with pytest.raises(ConfigError, match=r"a\.safetensors\.resume: .*rate is 0.002 there, 0.001 here"):
        TRAINERS["autoencoder"](pictures, out, course=replace(COURSE, rate=1e-3))
    resume = tmp_path / "a.safetensors.resume"
    with safe_open(resume, "pt") as file:
        save_file({"network|network|odd": torch.zeros(1)}, resume, metadata=file.metadata())
    with pytest.raises(ConfigError, match="resume: damaged"):
        TRAINERS["autoencoder"](pictures, out, course=COURSE)
    resume.write_bytes(b"broken")
    with pytest.raises(ConfigError, match="resume"):
        TRAINERS["autoencoder"](pictures, out, course=COURSE)


def test_the_file_says_what_it_was_trained_on_and_how_well_it_does(pictures: PublicPictures, tmp_path: Path) -> None:
    out = tmp_path / "a.safetensors"
    figures = TRAINERS["autoencoder"](pictures, out, course=COURSE)
    report, seen = metadata_of(out), trained_on(out)
    assert (report["kind"], report["data"], report["pictures"], report["held_out"]) == (
        "autoencoder",
        "noise",
        "16",
        "3",
    )
    assert (report["epochs"], report["steps"], report["seed"]) == ("3", "6", "0")
    assert report["psnr"] == f"{figures.psnr:.4f}"
    assert report["torch"] == torch.__version__
    assert seen is not None
    assert torch.equal(seen, picture_hashes(pictures.train))
    network = load_autoencoder(out)
    truth = pictures.held / 255
    error = (network(network.encode(truth)) - truth).square().flatten(1).mean(1)
    assert (-10 * error.log10()).mean().item() == pytest.approx(figures.psnr, abs=1e-3)


def test_an_autoencoder_learns(tmp_path: Path) -> None:
    """Plain colors: three numbers say all, and pictures that were never seen are drawn."""
    plain = torch.from_numpy(RNG.integers(0, 256, (72, 3, 1, 1), np.uint8)).expand(-1, -1, 16, 16).contiguous()
    pictures = PublicPictures(name="plain", train=plain[:64], held=plain[64:], skipped=0, alike=0)
    course = Course(epochs=12, batch_size=16, rate=1e-2)
    figures = train_autoencoder(pictures, tmp_path / "a.safetensors", latent=128, width=8, course=course)
    assert figures.psnr > 18


def test_seconds_end_it_with_a_cold_rate(
    pictures: PublicPictures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def tick() -> float:
        now[0] += 0.1
        return now[0]

    monkeypatch.setattr(training.time, "monotonic", tick)
    course = Course(epochs=10_000, batch_size=8, rate=1e-3, seconds=5.0)
    TRAINERS["autoencoder"](pictures, tmp_path / "a.safetensors", course=course)
    report = metadata_of(tmp_path / "a.safetensors")
    assert 5 <= float(report["seconds_spent"]) < 7
    assert report["seconds"] == "5.0"
    assert 1 < int(report["epochs"]) < 100


def test_the_rate_goes_up_and_then_down_to_nothing() -> None:
    values = [warmth(step / 100) for step in range(101)]
    assert values[0] == pytest.approx(0.01)
    assert max(values) == pytest.approx(1.0, abs=1e-3)
    assert values[-1] == pytest.approx(0.0, abs=1e-12)
    assert all(a >= b for a, b in pairwise(values[2:]))


def test_a_loss_that_is_no_number_is_told(pictures: PublicPictures, tmp_path: Path) -> None:
    class Broken:
        networks: dict = {}  # noqa: RUF012
        optimizers: dict = {}  # noqa: RUF012

        def begin(self, pictures: int, seed: Seed) -> None: ...

        def learn(self, images: torch.Tensor, here: slice) -> torch.Tensor:
            return torch.tensor(torch.nan)

    with pytest.raises(ConfigError, match="rate: the loss is no longer finite"):
        training.train(Broken(), pictures.train, COURSE)


def test_an_epoch_shows_every_picture_once_moved_and_mirrored() -> None:
    level = torch.arange(32, dtype=torch.uint8).view(32, 1, 1, 1).expand(32, 16, 16, 3).contiguous()
    shown = torch.cat([images for _, images in batches(level, 8, Seed(1))])
    assert sorted((shown[:, 0, 0, 0] * 255).round().int().tolist()) == list(range(32))
    ramp = torch.arange(16, dtype=torch.uint8).view(1, 1, 16, 1).expand(32, 16, 16, 3).contiguous()
    rows = (torch.cat([images for _, images in batches(ramp, 8, Seed(1))])[:, 0, 5] * 255).round().int()
    starts = {tuple(row.tolist()) for row in rows}
    assert len(starts) > 5
    assert all(set(row) <= set(range(16)) and max(abs(a - b) for a, b in pairwise(row)) == 1 for row in starts)


def npz(path: Path, images: torch.Tensor) -> str:
    np.savez(path, images=images.permute(0, 2, 3, 1).numpy(), labels=np.zeros(len(images), np.int64))
    return str(path)


def test_skipped_pictures_and_their_copies_are_never_trained_on(tmp_path: Path) -> None:
    victims, others, more = noise(6), noise(30), noise(20)
    first = npz(tmp_path / "first.npz", torch.cat([victims, others]))
    second = npz(tmp_path / "second.npz", torch.cat([more, victims[2:4].flip(-1), victims[:1]]))
    pictures = public_pictures([Source(data=first, skip=6, draw="first"), second], size=16)
    assert (pictures.skipped, pictures.alike) == (6, 3)
    assert len(pictures.train) + len(pictures.held) == 50
    hashes = {bytes(row.tolist()) for row in picture_hashes(torch.cat([victims, victims.flip(-1)]))}
    used = picture_hashes(torch.cat([pictures.train, pictures.held]))
    assert not hashes & {bytes(row.tolist()) for row in used}
    assert pictures.name == "first + second"


def test_sources_of_any_size_and_color_come_together(tmp_path: Path) -> None:
    small = npz(tmp_path / "small.npz", noise(15, 8))
    large = npz(tmp_path / "large.npz", noise(15, 32)[:, :1])
    pictures = public_pictures([small, large], size=16)
    assert pictures.train.shape[1:] == (3, 16, 16)
    assert pictures.train.dtype == torch.uint8
    assert public_pictures([small, large], size=16, channels=1).train.shape[1:] == (1, 16, 16)


def test_the_held_out_are_the_same_for_the_same_seed(tmp_path: Path) -> None:
    file = npz(tmp_path / "a.npz", noise(40))
    one, two, other = (public_pictures([file], size=16, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.held, two.held)
    assert torch.equal(one.train, two.train)
    assert not torch.equal(one.held, other.held)


def test_too_few_pictures_are_refused(tmp_path: Path) -> None:
    file = npz(tmp_path / "few.npz", noise(5))
    with pytest.raises(ConfigError, match="too few to train on"):
        public_pictures([file], size=16)
    with pytest.raises(ConfigError, match="5 pictures, of which 8 are skipped"):
        public_pictures([file], size=16, skip=8)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": 0}, {"rate": 0.0}, {"seconds": -1.0}])
def test_courses_out_of_range_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="train-generator:"):
        Course(**wrong)
