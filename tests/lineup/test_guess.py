"""`gradveil.lineup`: one update as a user has it from autograd, some candidates, and who made it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toys import CLASSES, pictures, scenario

import gradveil
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch

CANDIDATES = pictures(12, 5)


def model() -> nn.Module:
    return scenario().model


def gradients(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    loss = F.cross_entropy(network(images), labels)
    return list(torch.autograd.grad(loss, list(network.parameters())))


def test_it_names_the_picture_of_a_gradient() -> None:
    network = model()
    update = gradients(network, CANDIDATES[7:8], torch.tensor([2]))
    found = gradveil.lineup(network, update, CANDIDATES, 2, classes=CLASSES)
    assert (found.best, found.rank_of(7), found.kind) == (7, 1, "exact")
    assert found.posterior[7] > 0.99
    assert sorted(found.order) == list(range(12))


def test_by_name_in_a_batch_and_with_a_class_for_each() -> None:
    network, rest = model(), pictures(3, 6)
    images, labels = torch.cat([CANDIDATES[4:5], rest]), torch.tensor([1, 0, 3, 3])
    update = dict(zip(dict(network.named_parameters()), gradients(network, images, labels), strict=True))
    others = Batch(rest, F.one_hot(labels[1:], CLASSES).float())
    own = torch.arange(12) % CLASSES
    own[4] = 1
    assert gradveil.lineup(network, update, CANDIDATES, own, classes=CLASSES, others=others).best == 4
    without = gradveil.lineup(network, update, CANDIDATES, own, classes=CLASSES)
    assert without.log_likelihood.max() < -100, "alone in the batch none of them makes this update"


def test_through_noise_it_says_how_sure_it_is() -> None:
    """The posterior is a probability: of updates whose picture has about one half, about half are named."""
    network, rng = model(), torch.Generator().manual_seed(0)
    hits, promised = 0, 0.0
    for number in range(200):
        at = number % 12
        plain = gradients(network, CANDIDATES[at : at + 1], torch.tensor([0]))
        update = [u + 3.0 * torch.randn(u.shape, generator=rng) for u in plain]
        found = gradveil.lineup(network, update, CANDIDATES, 0, classes=CLASSES, defense="gaussian:scale=3")
        hits += found.best == at
        promised += float(found.posterior.max())
    assert 0.2 < hits / 200 < 0.95
    assert abs(hits - promised) < 4 * 200**0.5 / 2


def test_several_local_steps() -> None:
    network = model()
    weights = {name: p.detach().clone() for name, p in network.named_parameters()}
    for _ in range(3):
        with torch.no_grad():
            for p, g in zip(network.parameters(), gradients_of(network), strict=True):
                p -= 0.1 * g
    update = {name: weights[name] - p.detach() for name, p in network.named_parameters()}
    network.load_state_dict(weights)
    training = LocalTraining(steps=3, rate=0.1)
    assert gradveil.lineup(network, update, CANDIDATES, 3, classes=CLASSES, training=training).best == 9


def gradients_of(network: nn.Module) -> list[torch.Tensor]:
    with torch.enable_grad():
        return gradients(network, CANDIDATES[9:10], torch.tensor([3]))


def test_what_is_wrong_is_said() -> None:
    network = model()
    update = gradients(network, CANDIDATES[:1], torch.tensor([0]))
    with pytest.raises(ConfigError, match="has 1 tensors, the model has 2 parameters"):
        gradveil.lineup(network, update[:1], CANDIDATES, 0, classes=CLASSES)
    with pytest.raises(ConfigError, match=r"1.bias must be \(4,\), got \(5,\)"):
        gradveil.lineup(network, [update[0], torch.zeros(5)], CANDIDATES, 0, classes=CLASSES)
    with pytest.raises(ConfigError, match="one class from 0 to 3"):
        gradveil.lineup(network, update, CANDIDATES, 4, classes=CLASSES)
    with pytest.raises(ConfigError, match="one class from 0 to 3"):
        gradveil.lineup(network, update, CANDIDATES, torch.zeros(5), classes=CLASSES)
    with pytest.raises(ConfigError, match="candidates"):
        gradveil.lineup(network, update, CANDIDATES[0], 0, classes=CLASSES)
    with pytest.raises(ConfigError, match=r"numbers from 0 to 1, got \(.*of torch.uint8"):
        gradveil.lineup(network, update, (255 * CANDIDATES).byte(), 0, classes=CLASSES)
    with pytest.raises(ConfigError, match=r"update: 0.weight|update: 1.weight holds numbers that are not finite"):
        gradveil.lineup(network, [torch.nan * u for u in update], CANDIDATES, 0, classes=CLASSES)
    with pytest.raises(ConfigError, match=r"others: must be pictures .* soft labels of 4 classes"):
        gradveil.lineup(network, update, CANDIDATES, 0, classes=CLASSES,
                        others=Batch(CANDIDATES[1:4], torch.eye(9)[:3]))  # fmt: skip
    others = Batch(CANDIDATES[1:4], torch.eye(4)[:3])
    with pytest.raises(NotApplicableError, match="drew"):
        gradveil.lineup(network, update, CANDIDATES, 0, classes=CLASSES, defense="mixup:k=2", others=others)
