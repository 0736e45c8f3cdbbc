"""The conditional GAN: what it draws, what its critic guarantees, and that its training can be interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.generators import conditional_training, gan_course
from gradveil.generators.conditional import Conditional, ConditionalGan
from gradveil.generators.conditional_training import Reached, train_gan
from gradveil.generators.critic import Critic, SpectralNorm
from gradveil.generators.gan_course import BLOCK, Drawn, GanCourse
from gradveil.generators.gan_step import Duel
from gradveil.generators.generator import load_generator
from gradveil.generators.labeled_pictures import labeled_pictures
from gradveil.generators.pictures import Source
from gradveil.generators.provenance import check_not_trained_on
from gradveil.generators.stored import metadata_of
from gradveil.models.start import weights_from

SMALL = {"classes": 3, "width": 8, "blocks": 1, "full": 1, "noise": 6, "embedding": 4}
COURSE = GanCourse(steps=2 * BLOCK, batch_size=4, critic_steps=1, save_every=0.0)


def small() -> ConditionalGan:
    with weights_from(0):
        return ConditionalGan(**SMALL)


def pictures() -> tuple[Tensor, Tensor]:
    """Dark, middle and light: a class each."""
    labels = torch.eye(3).repeat(20, 1)
    noise = torch.randint(0, 40, (60, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    return (noise + 100 * labels.argmax(1)[:, None, None, None]).to(torch.uint8), labels


def duel(course: GanCourse = COURSE) -> Duel:
    generator = small()
    with weights_from(1):
        critic = Critic(classes=3, size=generator.size, width=8)
    return Duel(generator, critic, *pictures(), course)


def test_a_latent_is_noise_and_class() -> None:
    model = small().eval()
    assert isinstance(model, Conditional)
    assert (model.latent, model.noise, model.size) == ((10,), 6, (3, 8, 8))
    noise, labels = torch.randn(3, 6), torch.eye(3)
    drawn = model(torch.cat([noise, model.embed(labels)], 1))
    assert drawn.shape == (3, 3, 8, 8)
    assert 0 <= drawn.min() <= drawn.max() <= 1
    other = model(torch.cat([noise, model.embed(labels.roll(1, 0))], 1))
    assert ((drawn - other).abs().amax((1, 2, 3)) > 1e-3).all()


def test_a_soft_label_is_embedded_between_the_classes() -> None:
    model, labels = small(), torch.eye(3)
    assert torch.allclose(model.embed((labels[:1] + labels[1:2]) / 2), model.embed(labels)[:2].mean(0, keepdim=True))


def test_a_picture_does_not_depend_on_its_neighbors() -> None:
    model, z = small().eval().double(), torch.randn(4, 10).double()
    assert torch.allclose(model(z)[1], model(z[1:2])[0], atol=1e-12)


def test_it_goes_through_torch_func() -> None:
    model, z = small().eval().requires_grad_(False).double(), torch.randn(2, 10).double()
    slope = torch.func.vmap(torch.func.grad(lambda one: model(one[None]).square().sum()))(z)
    leaf = z.clone().requires_grad_()
    assert torch.allclose(slope, torch.autograd.grad(model(leaf).square().sum(), leaf)[0], atol=1e-10)


def test_spectral_norm_is_the_largest_singular_value() -> None:
    norm, weight = SpectralNorm(12), torch.randn(12, 4, 3, 3)
    for _ in range(200):
        got = norm(weight)
    assert torch.linalg.matrix_norm(got.flatten(1), 2) == pytest.approx(1, abs=1e-4)
    assert torch.allclose(got * torch.linalg.matrix_norm(weight.flatten(1), 2), weight, atol=1e-3)


def test_a_critic_asks_for_the_class() -> None:
    with weights_from(1):
        critic = Critic(classes=3, size=(3, 16, 16), width=8).eval()
    images = torch.rand(2, 3, 16, 16)
    assert critic(images, torch.eye(3)[:2]).shape == (2,)
    assert not torch.allclose(critic(images, torch.eye(3)[:2]), critic(images, torch.eye(3)[1:]))


def test_the_generator_learns_the_brightness_of_the_classes() -> None:
    """A critic that ignored the class, or a generator that did, would leave them alike."""
    course = GanCourse(steps=2 * BLOCK, batch_size=16, critic_steps=1, rate=4e-3, critic_rate=8e-3, average=0.9)
    one = duel(course)
    train_gan(one)
    model = one.settled()
    labels = torch.eye(3).repeat_interleave(8, 0)
    with torch.no_grad():
        drawn = model(torch.cat([torch.randn(24, 6), model.embed(labels)], 1)).mean((1, 2, 3)).view(3, 8).mean(1)
    assert drawn[0] + 0.1 < drawn[1] < drawn[2] - 0.1


def test_an_interrupted_training_ends_in_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gan_course, conditional_training):
        monkeypatch.setattr(module, "BLOCK", 4)
    course = replace(COURSE, steps=7)

    def stop(reached: Reached) -> None:
        if reached.step == course.steps:  # the block before this one has been saved
            raise KeyboardInterrupt

    whole, rest, file = duel(course), duel(course), tmp_path / "resume"
    train_gan(whole)
    with pytest.raises(KeyboardInterrupt):
        train_gan(duel(course), resume=file, on_block=stop)
    assert train_gan(rest, resume=file).step == course.steps
    for name, network in whole.networks.items():
        for key, tensor in network.state_dict().items():
            assert torch.equal(tensor, rest.networks[name].state_dict()[key]), (name, key)


def test_other_settings_do_not_go_on_with_a_checkpoint(tmp_path: Path) -> None:
    short = replace(COURSE, steps=1)
    train_gan(duel(short), resume=tmp_path / "resume")
    with pytest.raises(ConfigError, match="other settings"):
        train_gan(duel(short), resume=tmp_path / "resume", identity={"data": "others"})


def test_what_is_drawn_belongs_to_the_block() -> None:
    one, again, other = (Drawn.of(block, 60, 6, COURSE) for block in (2, 2, 3))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one.noise, other.noise)


def test_time_ends_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gan_course, conditional_training):
        monkeypatch.setattr(module, "BLOCK", 2)
    course = GanCourse(steps=10**6, seconds=0.2, batch_size=4, critic_steps=1)
    assert train_gan(duel(course)).step < 10**6


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"steps": 0}, {"batch_size": 1}, {"critic_steps": 0}, {"rate": 0.0}, {"seconds": -1.0}):
        with pytest.raises(ConfigError):
            GanCourse(**wrong)


def test_the_command_writes_a_generator_a_sheet_and_what_it_has_seen(tmp_path: Path) -> None:
    out = tmp_path / "gan.safetensors"
    size = ["--size", "8", "--width", "4", "--critic-width", "4", "--batch-size", "4", "--critic-steps", "1"]
    command = ["train-gan", "--data", "photos:limit=12", *size, "--steps", "2", "--device", "cpu", "--out", str(out)]
    with pytest.raises(SystemExit) as end:
        main([*command, "--precision", "bf16", "--quiet"])
    assert end.value.code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gan.png", "gan.safetensors"]
    assert load_generator(out).size == (3, 8, 8)
    report = metadata_of(out)
    assert (report["data"], report["pictures"], report["steps"]) == ("photos", "12", "2")
    seen = labeled_pictures(Source(data="photos", options={"limit": 12}), size=8)
    with pytest.raises(ConfigError, match="was trained on 12 of the 12"):
        check_not_trained_on(out, seen.images)


def test_a_second_run_does_not_write_over_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gan.safetensors"
    out.write_bytes(b"mine")
    with pytest.raises(SystemExit) as end:
        main(["train-gan", "--data", "photos", "--out", str(out)])
    assert end.value.code == 2
    assert "exists" in capsys.readouterr().err
    assert out.read_bytes() == b"mine"


def test_look_alikes_of_what_is_attacked_are_left_out() -> None:
    everything = labeled_pictures(Source(data="photos", options={"limit": 20}), size=16)
    victims = Source(data="photos", options={"limit": 5, "split": "train"})
    left = labeled_pictures(Source(data="photos", options={"limit": 20}), avoid=(victims,), size=16)
    assert left.alike >= 5
    assert len(left.images) == len(left.labels) == len(everything.images) - left.alike


def test_a_size_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 30"):
        labeled_pictures(Source(data="photos", options={"limit": 2}), size=30)


def test_networks_are_in_training_mode_until_the_end() -> None:
    one = duel()
    assert all(network.training for network in one.networks.values())
    norms = [module for module in one.settled().modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
