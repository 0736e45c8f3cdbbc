"""The enhancer: any size, any device and type, one picture at a time; and that training it helps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.generators.critic import PatchDiscriminator, critic_loss, generator_loss
from gradveil.generators.enhancer import KIND, Enhancer, UNet, load_enhancer, pad
from gradveil.generators.learn_enhancer import Restoration, Task, train_enhancer
from gradveil.generators.pictures import Source, public_pictures
from gradveil.generators.stored import store_network
from gradveil.generators.training import Course

ARCHITECTURE = {"channels": 3, "width": 4}


@pytest.fixture
def network() -> UNet:
    network = UNet(**ARCHITECTURE)
    torch.nn.init.normal_(network.last.weight, std=0.1)
    return network.requires_grad_(False).eval()


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (28, 28), (32, 32), (33, 47), (64, 48)])
def test_any_size_goes_in_and_comes_out(network: UNet, size: tuple[int, int]) -> None:
    images = torch.rand(2, 3, *size)
    got = Enhancer(network=network)(images)
    assert got.shape == images.shape
    assert 0 <= got.min() <= got.max() <= 1


def test_sizes_that_fit_are_not_padded() -> None:
    images = torch.rand(1, 3, 48, 64)
    assert pad(images) is images
    assert pad(torch.rand(1, 3, 49, 8)).shape == (1, 3, 64, 32)


def test_an_untrained_one_changes_little() -> None:
    images = torch.rand(2, 3, 20, 20)
    assert (Enhancer(network=UNet(**ARCHITECTURE))(images) - images).abs().max() < 0.3


def test_a_picture_does_not_depend_on_its_neighbors(network: UNet) -> None:
    images = torch.rand(2, 3, 3, 32, 32)
    together = Enhancer(network=network)(images)
    alone = torch.stack([Enhancer(network=network)(one) for one in images.flatten(0, 1)]).view_as(images)
    assert torch.allclose(together, alone, atol=1e-4)
    assert not torch.allclose(together, images, atol=1e-3)


def test_it_follows_the_type_and_leaves_the_network_alone(network: UNet) -> None:
    images = torch.rand(1, 3, 32, 32, dtype=torch.float64, requires_grad=True)
    got = Enhancer(network=network)(images)
    assert got.dtype == torch.float64
    assert not got.requires_grad
    assert network.last.weight.dtype == torch.float32


def test_what_is_read_back_is_the_same(network: UNet, tmp_path: Path) -> None:
    file = store_network(tmp_path / "e.safetensors", KIND, network, ARCHITECTURE, {}, {})
    images = torch.rand(2, 3, 32, 32)
    enhance = load_enhancer(file)
    assert torch.equal(enhance(images), Enhancer(network=network)(images))
    assert repr(enhance) == f"Enhancer(file={str(file)!r})"


def test_every_patch_is_judged_with_weights_of_norm_one() -> None:
    judge = PatchDiscriminator(width=8)
    for _ in range(50):
        opinion = judge(torch.rand(2, 3, 40, 24))
    assert opinion.shape == (2, 1, 5, 3)
    for conv in (*judge.halving, judge.last):
        assert torch.linalg.matrix_norm(conv.weight.flatten(1), 2).item() == pytest.approx(1, abs=0.02)


def test_the_judge_runs_in_half_precision() -> None:
    judge = PatchDiscriminator(width=8)
    with torch.autocast("cpu", torch.bfloat16):
        opinion = judge(torch.rand(2, 3, 16, 16))
    critic_loss(opinion.float(), -opinion.float()).backward()
    assert opinion.dtype == torch.bfloat16
    assert all(p.grad is not None and p.grad.isfinite().all() for p in judge.parameters())


def test_the_two_losses_pull_apart() -> None:
    sure = torch.full((2, 1, 2, 2), 2.0)
    assert critic_loss(sure, -sure) == 0
    assert critic_loss(-sure, sure) == 6
    assert generator_loss(sure) < generator_loss(-sure)


def discs(count: int) -> torch.Tensor:
    """White on black: what enlarging blurs and a network can sharpen again."""
    x, y, radius = 8 + 16 * torch.rand(3, count, 1, 1, 1, generator=torch.Generator().manual_seed(1))
    line = torch.arange(32.0)
    inside = (line.view(1, 1, 1, -1) - x) ** 2 + (line.view(1, 1, -1, 1) - y) ** 2 < (radius / 2) ** 2
    return inside.expand(-1, 3, -1, -1).to(torch.uint8) * 255


def test_it_learns_to_sharpen_a_few_pictures() -> None:
    course, task = Course(rate=1e-3), Task(noise=0.0, adversarial=0.01)
    learner = Restoration(UNet(**ARCHITECTURE), PatchDiscriminator(width=8), task, course)
    learner.begin(4, Seed(0))
    losses = [learner.learn(discs(4) / 255, slice(4)).item() for _ in range(50)]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.slow
def test_training_gains_on_pictures_it_has_not_seen(tmp_path: Path) -> None:
    pictures = public_pictures([Source(data="photos", options={"limit": 300})], size=32)
    task, course = Task(adversarial=0.001), Course(epochs=10, batch_size=16, rate=2e-3)
    figures = train_enhancer(pictures, tmp_path / "e.safetensors", width=8, task=task, course=course)
    assert figures.psnr > figures.psnr_before + 0.2
    assert figures.psnr_before > 15


def test_tasks_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="noise -1"):
        Task(noise=-1)
