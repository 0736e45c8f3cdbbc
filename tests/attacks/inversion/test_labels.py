"""Labels read off updates made by the real client."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.attacks.inversion.finish import clamp, keep
from gradveil.attacks.inversion.labels import given_or_idlg, inferred, last_linear
from gradveil.client import local_update, parameters_of
from gradveil.defenses.base import Defense
from gradveil.errors import NotApplicableError
from gradveil.scenario import LocalTraining
from gradveil.server import Observation
from gradveil.types import Batch

CLASSES = 10
FEDSGD = LocalTraining()


def lenet(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    conv = [nn.Conv2d(3, 12, 5, padding=2, stride=2), nn.Sigmoid(), nn.Conv2d(12, 12, 5, padding=2, stride=2)]
    return nn.Sequential(*conv, nn.Sigmoid(), nn.Flatten(), nn.Linear(192, CLASSES, bias=bias))


def view(model: nn.Module, labels: Tensor, training: LocalTraining = FEDSGD) -> Observation:
    """What a server without labels sees of clients with random pictures; labels [client, example, class]."""
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(*labels.shape[:2], 3, 16, 16, generator=rng)
    updates = [
        local_update(model, parameters_of(model), Batch(x, y), training, Defense(), rng)
        for x, y in zip(images, labels, strict=True)
    ]
    update = {name: torch.stack([u[name] for u in updates]) for name in updates[0]}
    names = tuple(f"client-{i}" for i in range(len(updates)))
    return Observation(
        model=model,
        update=update,
        training=training,
        examples=labels.shape[1],
        shape=(3, 16, 16),
        classes=labels.shape[-1],
        names=names,
    )


def one_hot(labels: Tensor) -> Tensor:
    return F.one_hot(labels, CLASSES).float()


def drawn(clients: int, examples: int) -> Tensor:
    return torch.randint(CLASSES, (clients, examples), generator=torch.Generator().manual_seed(2))


def share_recovered(got: Tensor, truth: Tensor) -> float:
    """The overlap of the two multisets of labels."""
    return (torch.minimum(got.sum(1), truth.sum(1)).sum() / truth.sum()).item()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("training", [LocalTraining(), LocalTraining(steps=5, rate=0.01)])
def test_one_picture_is_always_right(bias: bool, training: LocalTraining) -> None:
    truth = one_hot(drawn(40, 1))
    assert torch.equal(given_or_idlg(view(lenet(bias), truth, training)), truth)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("training", [LocalTraining(), LocalTraining(steps=4, rate=0.01, batch_size=4)])
def test_repeated_labels_of_a_batch_are_mostly_right(bias: bool, training: LocalTraining) -> None:
    truth = one_hot(drawn(30, 8))
    got = inferred(view(lenet(bias), truth, training))
    assert got.shape == truth.shape
    assert (got.sum(-1) == 1).all()
    assert share_recovered(got, truth) > 0.95


def test_a_batch_of_one_class() -> None:
    truth = one_hot(torch.full((1, 8), 7))
    assert torch.equal(inferred(view(lenet(), truth)), truth)


def test_given_labels_are_used_as_they_are() -> None:
    seen = view(lenet(), one_hot(drawn(2, 3)))
    soft = torch.full((2, 3, CLASSES), 0.1)
    assert given_or_idlg(Observation(**{**vars(seen), "labels": soft})) is soft


def test_a_client_does_not_depend_on_the_others() -> None:
    seen = view(lenet(), one_hot(drawn(5, 8)))
    assert torch.equal(inferred(seen)[3:4], inferred(seen.take([3])))


def test_several_classes_at_once() -> None:
    truth = (torch.rand(20, 1, CLASSES, generator=torch.Generator().manual_seed(5)) < 0.3).float()
    training = LocalTraining(loss="binary-cross-entropy")
    assert torch.equal(inferred(view(lenet(), truth, training)), truth)


def test_a_model_without_a_linear_head_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, CLASSES, 16), nn.Flatten())
    with pytest.raises(NotApplicableError, match="no linear layer with 10 outputs"):
        inferred(view(model, one_hot(drawn(1, 1))))


def test_a_frozen_head_is_refused() -> None:
    model = lenet().requires_grad_(False)
    model[0].requires_grad_(True)  # type: ignore[index]
    with pytest.raises(NotApplicableError, match="does not hold the layer '5'"):
        inferred(view(model, one_hot(drawn(1, 1))))


def test_the_last_layer_of_the_right_width_is_the_head() -> None:
    model = nn.Sequential(nn.Linear(4, 10), nn.Linear(10, 10), nn.Linear(10, 3))
    assert last_linear(model, 10) == "1"


def test_finishes() -> None:
    images = torch.tensor([-1.0, 0.25, 2.0]).view(1, 3, 1, 1, 1)
    assert clamp(images).flatten().tolist() == [0.0, 0.25, 1.0]
    assert keep(images) is images
