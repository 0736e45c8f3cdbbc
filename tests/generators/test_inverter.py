"""Updates as features, clients played many at once, and a training that ends alike however often it was stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from inverter_files import LESSON
from scenes import CLASSES, SHAPE, scene, smooth

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.generators.inverter import load_inverter
from gradveil.generators.inverter_setting import read_setting
from gradveil.generators.labeled_pictures import Labeled
from gradveil.generators.learn_inverter import simulation_of, train_inverter
from gradveil.generators.pictures import move_and_mirror
from gradveil.generators.provenance import check_not_trained_on
from gradveil.generators.simulate import in_drawing_order
from gradveil.generators.sketch import Sketch
from gradveil.generators.stored import metadata_of
from gradveil.generators.training import Course

COURSE = Course(epochs=3, batch_size=8, rate=2e-3, save_every=0.0)


def pictures(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(256, (count, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def public(count: int = 90) -> Labeled:
    labels = torch.eye(CLASSES)[torch.arange(count) % CLASSES]
    return Labeled(name="noise", images=pictures(count), labels=labels, class_names=(), alike=0)


def clients(count: int, examples: int = 1) -> Batch:
    labels = torch.eye(CLASSES)[torch.arange(count * examples) % CLASSES]
    return Batch(*(x.unflatten(0, (count, examples)) for x in (pictures(count * examples), labels)))


def test_a_sketch_keeps_directions_and_lengths() -> None:
    update = {"large": torch.randn(40, 30, 20), "small": 3 * torch.randn(40, 7)}
    features = Sketch(64)(update)
    assert features.shape == (40, Sketch(64).count({"large": (30, 20), "small": (7,)}))
    large, small, lengths = features.split([64, 7, 2], 1)
    assert torch.allclose(lengths.exp()[:, 1], update["small"].norm(dim=1))
    assert torch.allclose(small, 7**0.5 * update["small"] / update["small"].norm(dim=1, keepdim=True))
    flat = update["large"].flatten(1)
    angles = torch.corrcoef(flat)
    found = large @ large.T / 64
    assert (found - angles)[~torch.eye(40, dtype=torch.bool)].abs().mean() < 0.15  # 1 / sqrt(64) each
    assert torch.allclose(Sketch(64)({"large": 5 * update["large"]})[:, :64], large, atol=1e-5)


def test_a_sketch_of_nothing_is_a_number() -> None:
    assert Sketch(8)({"w": torch.zeros(2, 20)}).isfinite().all()


@pytest.mark.parametrize("text", ["none", "prune:ratio=0.9", "sign", "soteria:rate=0.5"])
def test_many_at_once_send_what_each_sends_alone(text: str) -> None:
    simulation = simulation_of(scene(smooth(), 1), parse_defense(text), LESSON)
    assert simulation.at_once == "error"
    four = clients(4)
    fed = Batch(four.images.double() / 255, four.labels.double())
    together = simulation.updates(fed, Seed(3))
    for place in range(4):
        alone = simulation.send(Batch(fed.images[place], fed.labels[place]), Seed(3))
        assert all(torch.allclose(together[name][place], u, atol=1e-10) for name, u in alone.items())


@pytest.mark.parametrize("text", ["gaussian:scale=0.1", "dpsgd:clip=1,noise=0.1"])
def test_a_defense_that_draws_draws_for_each(text: str) -> None:
    simulation = simulation_of(scene(smooth(), 1), parse_defense(text), LESSON)
    assert simulation.at_once == "different"
    same = Batch(*(x.expand(40, *x.shape[1:]) for x in clients(1)))
    fed = Batch(same.images.double() / 255, same.labels.double())
    update = next(iter(simulation.updates(fed, Seed(3)).values()))
    plain = next(iter(replace(simulation, defense=simulation.defense.quiet()).updates(fed, Seed(3)).values()))
    noise = (update - plain).flatten(1)
    assert noise.std().item() == pytest.approx(0.1, rel=0.05)
    off_diagonal = torch.corrcoef(noise)[~torch.eye(40, dtype=torch.bool)]
    assert off_diagonal.abs().mean() < 2 / noise.shape[1] ** 0.5
    assert torch.equal(update, next(iter(simulation.updates(fed, Seed(3)).values())))


class Stubborn(Defense):
    """Draws a number that Python looks at: nothing that can be traced."""

    def update(self, update, rng):
        factor = torch.rand((), generator=rng).item()
        return {name: factor * u for name, u in update.items()}


def test_what_cannot_be_traced_is_played_one_by_one() -> None:
    simulation = simulation_of(scene(smooth(), 1), Stubborn(), LESSON)
    assert simulation.at_once == "no"
    same = Batch(*(x.expand(3, *x.shape[1:]) for x in clients(1)))
    update = simulation.updates(Batch(same.images.double() / 255, same.labels.double()), Seed(0))
    lengths = next(iter(update.values())).flatten(1).norm(dim=1)
    assert len(lengths.unique()) == 3


def test_the_pictures_of_a_client_are_drawn_in_one_order() -> None:
    batch = clients(6, 3)
    ordered = in_drawing_order(batch)
    shuffled = in_drawing_order(Batch(*(x[:, [2, 0, 1]] for x in batch)))
    assert torch.equal(ordered.images, shuffled.images)
    assert torch.equal(ordered.labels, shuffled.labels)
    assert (ordered.labels.argmax(-1).diff(dim=1) >= 0).all()


def test_pictures_are_moved_by_an_eighth_and_mirrored() -> None:
    plain = pictures(64)
    moved = move_and_mirror(plain, Seed(0))
    assert moved.shape == plain.shape
    inner = slice(1, -1)
    views = [
        view.roll((down, across), (2, 3))[..., inner, inner]
        for view in (plain, plain.flip(-1)) for down in (-1, 0, 1) for across in (-1, 0, 1)
    ]  # fmt: skip
    found = torch.stack([(view == moved[..., inner, inner]).flatten(1).all(1) for view in views])
    assert (found.sum(0) >= 1).all()
    assert (found.sum(1) > 0).sum() == len(views)


@pytest.mark.parametrize("stop", ["simulation", "training"])
def test_interrupted_it_ends_with_the_same_bytes(stop: str, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    setting = scene(smooth(), 1), parse_defense("gaussian:scale=0.01"), public()
    lesson = replace(LESSON, copies=3)
    train_inverter(*setting, whole, lesson=lesson, course=COURSE)

    def stop_simulating(done: int, total: int) -> None:
        assert total == 3 * 81 + 9
        if done > 80:
            raise KeyboardInterrupt

    def stop_training(progress) -> None:
        if progress.epoch > 1:
            raise KeyboardInterrupt

    stops = {"on_simulated": stop_simulating} if stop == "simulation" else {"on_epoch": stop_training}
    with pytest.raises(KeyboardInterrupt):
        train_inverter(*setting, parts, lesson=lesson, course=COURSE, **stops)
    assert not parts.exists()
    assert (tmp_path / "parts.safetensors.simulated").is_dir()
    with pytest.raises(ConfigError, match=r"parts\.safetensors\.simulated: .*sketch is 32 there, 16 here"):
        train_inverter(*setting, parts, lesson=replace(lesson, sketch=16), course=COURSE)
    train_inverter(*setting, parts, lesson=lesson, course=COURSE)
    one, two = load_inverter(whole).state_dict(), load_inverter(parts).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert {path.name for path in tmp_path.iterdir()} == {"whole.safetensors", "parts.safetensors"}


@pytest.mark.parametrize("decoder", ["perceptron", "convolutions"])
def test_the_file_says_what_it_is_for_and_what_it_has_seen(decoder: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    lesson, noise = replace(LESSON, decoder=decoder), public(60)
    train_inverter(scene(smooth(), 1, 2), parse_defense("sign"), noise, file, lesson=lesson, course=COURSE)
    setting = read_setting(file)
    assert (setting.shape, setting.examples, setting.training["steps"]) == (SHAPE, 2, 1)
    assert setting.defense.startswith("Sign(")
    assert metadata_of(file)["pictures"] == "60"
    network = load_inverter(file)
    drawn = network(torch.randn(4, network.mean.numel()), torch.zeros(4, 2, CLASSES))
    assert drawn.shape == (4, 2, *SHAPE)
    with pytest.raises(ConfigError, match="was trained on"):
        check_not_trained_on(file, noise.images[:20])
    check_not_trained_on(file, pictures(20, seed=1))


def test_what_was_learned_by_heart_is_held_back(tmp_path: Path) -> None:
    """Under noise that hides everything, drawings of unseen pictures end no farther from them than the mean is."""
    file = tmp_path / "a.safetensors"
    course = replace(COURSE, epochs=60, rate=5e-3)
    figures = train_inverter(
        scene(smooth(), 1), parse_defense("gaussian:scale=1000"), public(), file, lesson=LESSON, course=course
    )
    network = load_inverter(file)
    assert 0 <= network.trust < 0.3
    assert figures.psnr > figures.psnr_before - 0.02


def test_too_few_pictures_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="noise: 19 public pictures are too few, give 20 or more"):
        train_inverter(scene(smooth(), 1), Defense(), public(19), tmp_path / "a.safetensors", lesson=LESSON)
