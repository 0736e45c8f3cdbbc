"""Labels read off the updates of real networks: never fewer than a guess that looks at nothing would have."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch
from gradveil.engine.labels import infer_labels
from gradveil.models.start import weights_from

sys.path.append(str(Path(__file__).resolve().parents[2] / "papers" / "loda"))
from resnet20 import ResNet20, trained_on_cifar10  # pyright: ignore[reportMissingImports]

CLASSES, BATCHES = 10, 60


@cache
def pictures(folder: Path, count: int = 1200) -> Batch:
    sys.path.append(str(folder))
    try:
        import loader  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(folder))
    images, labels = loader.cifar10("test")
    some = torch.from_numpy(images[:count]).permute(0, 3, 1, 2).float() / 255
    return Batch(some, F.one_hot(torch.from_numpy(labels[:count]).long(), CLASSES).float())


@cache
def network(folder: Path, trained: bool) -> nn.Module:
    if trained:
        return trained_on_cifar10(folder)
    with weights_from(0):
        return ResNet20(CLASSES).eval()


def observe_heads(folder: Path, trained: bool, examples: int, public: bool, scale: float) -> tuple[Observation, Tensor]:
    """The last layer's part of one FedSGD step, of batches drawn at random with repetition, and the true counts."""
    model, data = network(folder, trained), pictures(folder)
    features: list[Tensor] = []
    hook = model.get_submodule("linear").register_forward_pre_hook(lambda _layer, inputs: features.append(inputs[0]))
    with torch.no_grad():
        errors = model(data.images).softmax(-1) - data.labels
    hook.remove()
    drawn = torch.randint(1000, (BATCHES, examples), generator=torch.Generator().manual_seed(7))
    weight = torch.einsum("nbk,nbf->nkf", errors[drawn], features[0][drawn]) / examples
    seen = Observation(
        model=model,
        update={"linear.weight": scale * weight, "linear.bias": scale * errors[drawn].mean(1)},
        training=LocalTraining(),
        examples=examples,
        shape=(3, 32, 32),
        classes=CLASSES,
        names=tuple(map(str, range(BATCHES))),
        public=Batch(data.images[1000:], data.labels[1000:]) if public else None,
    )
    return seen, data.labels[drawn].sum(1)


def share_right(got: Tensor, truth: Tensor) -> float:
    return (torch.minimum(got, truth).sum() / truth.sum()).item()


def every_class_alike(truth: Tensor) -> Tensor:
    """The best guess of one who sees nothing: each class as often as the others, the rest dealt out at random."""
    examples, rng = int(truth[0].sum()), torch.Generator().manual_seed(3)
    rest = torch.stack([torch.randperm(CLASSES, generator=rng) < examples % CLASSES for _ in truth])
    return rest.float() + examples // CLASSES


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(("examples", "gain"), [(8, 0.02), (32, -0.01)])
def test_on_a_trained_network_inference_is_not_below_the_guess(
    shared_data: Path, public: bool, examples: int, gain: float
) -> None:
    seen, truth = observe_heads(shared_data, True, examples, public, 1.0)
    guess = share_right(every_class_alike(truth), truth)
    assert share_right(infer_labels(seen).sum(1), truth) > guess + gain


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("examples", [8, 32])
def test_on_an_untrained_network_labels_are_right(shared_data: Path, public: bool, examples: int) -> None:
    seen, truth = observe_heads(shared_data, False, examples, public, 1.0)
    assert share_right(infer_labels(seen).sum(1), truth) >= 0.95


@pytest.mark.parametrize("trained", [False, True])
def test_an_update_of_another_length_still_tells_more_than_the_guess(shared_data: Path, trained: bool) -> None:
    seen, truth = observe_heads(shared_data, trained, 8, True, 1e-3)
    assert share_right(infer_labels(seen).sum(1), truth) > share_right(every_class_alike(truth), truth) + 0.02
