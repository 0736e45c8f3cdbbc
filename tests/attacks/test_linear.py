"""The closed-form attack: exact where it must be, refused where it cannot."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.attacks.linear import FirstLinear, linear
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.models.normalize import Normalize

SHAPE, CLASSES = (3, 8, 8), 10
FEDSGD, NO_DEFENSE, LINEAR = LocalTraining(), Defense(), linear()


def mlp(hidden: int = 64, first: tuple[nn.Module, ...] = ()) -> nn.Module:
    torch.manual_seed(0)
    body = [nn.Flatten(), nn.Linear(192, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)]
    return nn.Sequential(Normalize((0.5, 0.4, 0.3), (0.2, 0.25, 0.3)), *first, *body)


def scene(model: nn.Module, clients: int, examples: int, training: LocalTraining = FEDSGD) -> Scenario:
    rng = torch.Generator().manual_seed(7)
    images = torch.rand(clients, examples, *SHAPE, generator=rng)
    labels = F.one_hot(torch.randint(CLASSES, (clients, examples), generator=rng), CLASSES).float()
    names = tuple(f"client-{i}" for i in range(clients))
    threat = ThreatModel(knows_labels=False)
    return Scenario(name="s", model=model, private=Batch(images, labels), names=names, training=training, threat=threat)


def attacked(scenario: Scenario, defense: Defense = NO_DEFENSE, attack: FirstLinear = LINEAR):
    seen, truth = observe(scenario, defense, attack, Seed(0))
    return attack.reconstruct(seen, Seed(0)), truth.private


def psnr(got: Tensor, truth: Tensor) -> Tensor:
    return -10 * (got - truth).double().square().flatten(-3).mean(-1).log10()


def best_psnr(got: Tensor, truth: Tensor) -> Tensor:
    """Of every true picture, the nearest reconstruction: [client, example]."""
    return psnr(got.unsqueeze(1), truth.unsqueeze(2)).amax(-1)


@pytest.mark.parametrize("training", [LocalTraining(), LocalTraining(steps=5, rate=0.1)])
def test_one_picture_is_exact(training: LocalTraining) -> None:
    got, truth = attacked(scene(mlp(), 4, 1, training))
    assert got.images.shape == truth.images.shape
    assert got.found.all()
    assert psnr(got.images, truth.images).min() > 100
    assert torch.equal(got.labels, truth.labels)
    assert got.loss.max() < 1e-4
    assert got.notes == ()


def test_gradient_noise_destroys_it_and_the_loss_tells() -> None:
    clean, truth = attacked(scene(mlp(), 4, 1))
    noisy, _ = attacked(scene(mlp(), 4, 1), Gaussian(scale=0.1))
    assert psnr(noisy.images, truth.images).max() < 15
    assert noisy.loss.min() > 0.5 > clean.loss.max()


def test_pictures_of_a_batch_are_read_from_rows_of_their_own() -> None:
    got, truth = attacked(scene(mlp(hidden=512), 3, 2))
    assert (best_psnr(got.images, truth.images) > 60).float().mean() > 0.6


def test_candidates_are_counted_once() -> None:
    got, _ = attacked(scene(mlp(hidden=512), 2, 4))
    for pictures, found in zip(got.images, got.found, strict=True):
        apart = torch.cdist(pictures[found].flatten(1), pictures[found].flatten(1)) / 192**0.5
        assert (apart + torch.eye(len(apart)) > 1e-3).all()


def test_several_steps_on_a_batch_leave_a_note() -> None:
    got, _ = attacked(scene(mlp(), 1, 2, LocalTraining(steps=3, rate=0.1)))
    assert "several local steps" in got.notes[0]


def test_nothing_readable_is_said_so() -> None:
    model = mlp()
    with torch.no_grad():
        model[2].bias.fill_(-1e3)  # type: ignore[union-attr]  # every unit is dead
    for examples in (1, 2):
        got, _ = attacked(scene(model, 2, examples))
        assert not got.found.any()
        assert got.images.eq(0.5).all()
        assert got.loss.eq(1).all()


def test_a_broken_update_fails_alone() -> None:
    attack = linear()
    for examples in (1, 2):
        seen, _ = observe(scene(mlp(), 2, examples), Defense(), attack, Seed(0))
        clean = attack.reconstruct(seen, Seed(0))
        seen.update["2.weight"][0, 5, 5] = torch.nan
        got = attack.reconstruct(seen, Seed(0))
        assert got.loss[0].isnan()
        assert torch.equal(got.images[1], clean.images[1])
        assert got.images.isfinite().all()


def test_a_client_does_not_depend_on_the_others() -> None:
    attack = linear()
    seen, _ = observe(scene(mlp(), 3, 3), Defense(), attack, Seed(0))
    whole, alone = attack.reconstruct(seen, Seed(0)), attack.reconstruct(seen.take([1]), Seed(0))
    assert torch.allclose(whole.images[1:2], alone.images, atol=1e-6)
    assert torch.equal(whole.found[1:2], alone.found)


@pytest.mark.parametrize("first", [nn.Conv2d(3, 3, 3, padding=1), nn.Sigmoid()])
def test_features_are_refused(first: nn.Module) -> None:
    with pytest.raises(NotApplicableError, match="sees features"):
        attacked(scene(mlp(first=(first,)), 1, 1))


def test_a_model_without_a_linear_layer_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, CLASSES, 8), nn.Flatten())
    with pytest.raises(NotApplicableError, match="no linear layer"):
        attacked(scene(model, 1, 1))


def test_a_layer_without_bias_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES, bias=False))
    with pytest.raises(NotApplicableError, match="no weight and bias of layer '1'"):
        attacked(scene(model, 1, 1))


def test_out_of_range() -> None:
    with pytest.raises(ConfigError, match="linear"):
        linear(same=0.0)
