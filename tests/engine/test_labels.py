"""Labels read off updates made by the real client."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch
from gradveil.engine.finish import clamp, keep
from gradveil.engine.label_counts import Pushes, by_signs
from gradveil.engine.labels import gain, given_or_idlg, given_or_lowest, infer_labels, last_linear

CLASSES = 10
FEDSGD = LocalTraining()


def lenet(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    conv = [nn.Conv2d(3, 12, 5, padding=2, stride=2), nn.Sigmoid(), nn.Conv2d(12, 12, 5, padding=2, stride=2)]
    return nn.Sequential(*conv, nn.Sigmoid(), nn.Flatten(), nn.Linear(192, CLASSES, bias=bias))


def view(
    model: nn.Module, labels: Tensor, training: LocalTraining = FEDSGD, public: Batch | None = None
) -> Observation:
    """What a server without labels sees of clients with random pictures; labels [client, example, class]."""
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(*labels.shape[:2], 3, 16, 16, generator=rng)
    client = in_client_mode(model, training)
    updates = [
        local_update(client, parameters_of(model), Batch(x, y), training, Defense(), rng)
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
        public=public,
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
    got = infer_labels(view(lenet(bias), truth, training))
    assert got.shape == truth.shape
    assert (got.sum(-1) == 1).all()
    assert share_recovered(got, truth) > 0.95


def test_a_batch_of_one_class() -> None:
    truth = one_hot(torch.full((1, 8), 7))
    assert torch.equal(infer_labels(view(lenet(), truth)), truth)


def test_given_labels_are_used_as_they_are() -> None:
    seen = view(lenet(), one_hot(drawn(2, 3)))
    soft = torch.full((2, 3, CLASSES), 0.1)
    assert given_or_idlg(Observation(**{**vars(seen), "labels": soft})) is soft


def test_a_client_does_not_depend_on_the_others() -> None:
    seen = view(lenet(), one_hot(drawn(5, 8)))
    assert torch.equal(infer_labels(seen)[3:4], infer_labels(seen.take([3])))


def test_several_classes_at_once() -> None:
    truth = (torch.rand(20, 1, CLASSES, generator=torch.Generator().manual_seed(5)) < 0.3).float()
    training = LocalTraining(loss="binary-cross-entropy")
    assert torch.equal(infer_labels(view(lenet(), truth, training)), truth)


def test_the_lowest_rows_know_one_label_per_picture_only() -> None:
    truth = torch.ones(1, 1, CLASSES)
    seen = view(lenet(), truth, LocalTraining(loss="binary-cross-entropy"))
    with pytest.raises(NotApplicableError, match="these have several"):
        given_or_lowest(seen)


def test_a_model_without_a_linear_head_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, CLASSES, 16), nn.Flatten())
    with pytest.raises(NotApplicableError, match="no linear layer with 10 outputs"):
        infer_labels(view(model, one_hot(drawn(1, 1))))


def test_a_frozen_head_is_refused() -> None:
    model = lenet().requires_grad_(False)
    model[0].requires_grad_(True)  # type: ignore[index]
    with pytest.raises(NotApplicableError, match=r"does not hold '5\.weight'"):
        infer_labels(view(model, one_hot(drawn(1, 1))))


def test_the_last_layer_of_the_right_width_is_the_head() -> None:
    model = nn.Sequential(nn.Linear(4, 10), nn.Linear(10, 10), nn.Linear(10, 3))
    assert last_linear(model, 10) == "1"


def saturated(bias: bool = True) -> nn.Module:
    """Sure of itself before any training, so that absent classes pull too."""
    model = lenet(bias)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
            parameter.sub_(0.5)
    return model


def public(count: int = 64) -> Batch:
    images = torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(8))
    return Batch(images, one_hot(torch.arange(count) % CLASSES))


def few_classes(clients: int, examples: int) -> Tensor:
    """At most three classes, so most of them repeated."""
    return one_hot(drawn(clients, examples) % 3 + 4)


def exact(got: Tensor, truth: Tensor) -> float:
    return (got.sum(1) == truth.sum(1)).all(-1).float().mean().item()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("examples", [1, 2, 8, 32])
def test_with_public_pictures_repeated_labels_of_a_sure_model_are_right(bias: bool, examples: int) -> None:
    truth, model = few_classes(30, examples), saturated(bias)
    got = infer_labels(view(model, truth, public=public()))
    assert share_recovered(got, truth) > 0.98
    assert exact(got, truth) >= {1: 1.0, 2: 1.0, 8: 0.85, 32: 0.5}[examples]


def test_public_pictures_and_blank_ones_tell_more_than_signs() -> None:
    truth, model = few_classes(30, 8), saturated()
    seen = view(model, truth)
    signs = by_signs(seen.update["5.bias"], 8)
    assert exact(signs.unsqueeze(1), truth) < 0.1
    assert exact(infer_labels(seen), truth) > 0.5
    assert exact(infer_labels(replace(seen, public=public())), truth) > 0.8


@pytest.mark.parametrize("sharp", [1, 3])
@pytest.mark.parametrize("examples", [4, 32])
def test_counts_behind_a_push_are_found_whatever_the_model_says_of_each_class(sharp: int, examples: int) -> None:
    for seed in range(10):
        rng = torch.Generator().manual_seed(seed)
        answers = (sharp * torch.randn(6, 6, generator=rng, dtype=torch.float64)).softmax(-1)
        pushes = Pushes(answers - torch.eye(6))
        counts = torch.bincount(torch.randint(6, (examples,), generator=rng), minlength=6).double()
        got, left = pushes.fit(counts @ pushes.each, torch.zeros(6).double(), examples)
        assert torch.equal(got, counts)
        assert left < 1e-20


def test_the_fit_is_the_best_of_all_counts() -> None:
    """Against every way to deal four examples out to four classes, for pushes that no counts explain exactly."""
    ways = torch.tensor([c for c in product(range(5), repeat=4) if sum(c) == 4]).double()
    for seed in range(20):
        rng = torch.Generator().manual_seed(seed)
        pushes = Pushes(torch.randn(4, 4, generator=rng, dtype=torch.float64).softmax(-1) - torch.eye(4))
        push = ways[seed] @ pushes.each + 0.3 * torch.randn(4, generator=rng, dtype=torch.float64)
        least = (push - ways @ pushes.each).square().sum(1).min()
        got, left = pushes.fit(push, torch.zeros(4).double(), 4)
        assert got.sum() == 4
        assert torch.allclose(left * push.square().sum(), least)


def test_what_is_proven_stays_and_what_noise_claims_falls() -> None:
    pushes = Pushes(0.25 - torch.eye(4).double())
    push = pushes.each[0] + pushes.each[1]
    held, _ = pushes.fit(push, torch.tensor([0.0, 0.0, 1.0, 0.0]).double(), 2)
    assert held[2] == 1
    free, _ = pushes.fit(push, torch.tensor([0.0, 1.0, 1.0, 1.0]).double(), 2)
    assert free.tolist() == [1, 1, 0, 0]


def test_a_gradient_that_somebody_scaled_is_read_by_its_signs() -> None:
    truth = one_hot(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]))
    seen = view(lenet(), truth)
    clipped = replace(seen, update={name: 0.01 * u for name, u in seen.update.items()})
    assert torch.equal(infer_labels(clipped), truth)


@pytest.mark.parametrize(
    "training",
    [
        LocalTraining(steps=3, rate=1e-3),
        LocalTraining(steps=3, rate=1e-3, momentum=0.9),
        LocalTraining(steps=3, rate=1e-3, weight_decay=1e-2),
    ],
)
def test_local_steps_are_read_at_their_scale(training: LocalTraining) -> None:
    truth = few_classes(20, 8)
    assert exact(infer_labels(view(saturated(), truth, training, public())), truth) > 0.8


def test_the_gain_is_the_update_of_a_constant_gradient() -> None:
    training = LocalTraining(steps=4, rate=0.3, momentum=0.8)
    model = nn.Linear(3, 1, bias=False)  # the gradient of its output's mean does not depend on the weight

    class Constant(Defense):
        def gradient(self, compute, model, rng):
            return lambda params, batch: {name: torch.ones_like(p) for name, p in params.items()}

    batch = Batch(torch.zeros(1, 3), torch.ones(1, 1))
    update = local_update(model, parameters_of(model), batch, training, Constant(), torch.Generator())
    assert torch.allclose(update["weight"], torch.full((1, 3), gain(training)))


@pytest.mark.parametrize("mode", ["batch", "batch-shared"])
def test_public_pictures_are_normalized_as_the_clients(mode) -> None:
    torch.manual_seed(0)
    head = [nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, CLASSES)]
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), *head)
    truth, training = few_classes(10, 8), LocalTraining(batchnorm=mode)
    assert exact(infer_labels(view(model, truth, training, public(30))), truth) > 0.9


def test_a_broken_client_does_not_disturb_the_others() -> None:
    seen = view(saturated(), few_classes(3, 8), public=public())
    broken = replace(seen, update={name: u.clone() for name, u in seen.update.items()})
    for u in broken.update.values():
        u[1] = torch.nan
    assert torch.equal(infer_labels(broken)[[0, 2]], infer_labels(seen)[[0, 2]])


def test_finishes() -> None:
    images = torch.tensor([-1.0, 0.25, 2.0]).view(1, 3, 1, 1, 1)
    assert clamp(images).flatten().tolist() == [0.0, 0.25, 1.0]
    assert keep(images) is images
