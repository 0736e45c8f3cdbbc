"""The forward model against autograd, against torch.optim and against torch's own batch normalization."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scenes import CLASSES, SHAPE, drawn, one_hot, usual
from torch import Generator, Tensor, nn

from gradveil.core.client import batch_statistics, in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, GradientFn, Update

PLAIN = Defense()


def data(examples: int = 4) -> Batch:
    return Batch(drawn(examples, *SHAPE), one_hot(1, examples)[0])


def sent(model: nn.Module, batch: Batch, training: LocalTraining, defense: Defense = PLAIN) -> Update:
    client = in_client_mode(model, training)
    return local_update(client, parameters_of(client), batch, training, defense, Seed().rng())


def gradient(model: nn.Module, loss: Tensor) -> Update:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def assert_same(got: Update, expected: Update, tolerance: float = 0.0) -> None:
    assert list(got) == list(expected)
    for name in expected:
        assert (got[name] - expected[name]).abs().max() <= tolerance, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("examples", [1, 4])
def test_fedsgd_sends_the_gradient_bit_for_bit(dtype: torch.dtype, examples: int) -> None:
    model, batch = usual().to(dtype).eval(), Batch(*(x.to(dtype) for x in data(examples)))
    expected = gradient(model, F.cross_entropy(model(batch.images), batch.labels))
    assert_same(sent(model, batch, LocalTraining()), expected)


@pytest.mark.parametrize("rate", [0.1, 3.0])
def test_one_step_sends_the_scaled_gradient_bit_for_bit(rate: float) -> None:
    model, batch = usual(), data()
    expected = {name: rate * g for name, g in sent(model, batch, LocalTraining()).items()}
    assert_same(sent(model, batch, LocalTraining(rate=rate)), expected)


def trained_by_torch(model: nn.Module, batches: list[Batch], training: LocalTraining) -> nn.Module:
    model = copy.deepcopy(model)
    model.train(training.batchnorm != "eval")
    optimizer = torch.optim.SGD(
        model.parameters(), training.rate, training.momentum, weight_decay=training.weight_decay
    )
    for batch in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(batch.images), batch.labels).backward()
        optimizer.step()
    return model


def moved(before: nn.Module, after: nn.Module) -> Update:
    start, end = parameters_of(before), parameters_of(after)
    return {name: start[name] - end[name] for name in start}


@pytest.mark.parametrize("batchnorm", ["eval", "batch", "batch-shared"])
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.05), (0.9, 0.05)])
def test_several_steps_are_those_of_torch(batchnorm, momentum: float, weight_decay: float) -> None:
    training = LocalTraining(
        steps=5, rate=0.1, batch_size=2, momentum=momentum, weight_decay=weight_decay, batchnorm=batchnorm
    )
    model, whole = usual(), data(4)
    halves = [Batch(whole.images[i : i + 2], whole.labels[i : i + 2]) for i in (0, 2)]
    expected = trained_by_torch(model, [halves[step % 2] for step in range(5)], training)
    assert_same(sent(model, whole, training), moved(model, expected), tolerance=1e-13)


def firsts_of(training: LocalTraining, examples: int) -> list[list[int]]:
    """The examples of each step."""
    marked = torch.arange(examples, dtype=torch.float64)
    batches = training.batches(Batch(marked.view(-1, 1, 1, 1).expand(-1, *SHAPE), one_hot(1, examples)[0]))
    return [batch.images[:, 0, 0, 0].long().tolist() for batch in batches]


def test_minibatches_start_over_at_the_end_of_the_data() -> None:
    assert firsts_of(LocalTraining(steps=3, batch_size=2), 4) == [[0, 1], [2, 3], [0, 1]]
    assert firsts_of(LocalTraining(steps=2), 3) == [[0, 1, 2]] * 2
    assert firsts_of(LocalTraining(steps=2, batch_size=9), 3) == [[0, 1, 2]] * 2


def test_a_smaller_last_minibatch_ends_the_epoch_as_a_data_loader_does() -> None:
    loader = torch.utils.data.DataLoader(range(5), batch_size=2)  # type: ignore[arg-type]
    epoch = [batch.tolist() for batch in loader]
    assert firsts_of(LocalTraining(steps=6, batch_size=2), 5) == [*epoch, *epoch]


def test_soft_labels() -> None:
    model, images = usual().eval(), drawn(3, *SHAPE)
    labels = drawn(3, CLASSES, seed=1).softmax(-1)
    loss = -(labels * model(images).log_softmax(-1)).sum(-1).mean()
    assert_same(sent(model, Batch(images, labels), LocalTraining()), gradient(model, loss), tolerance=1e-15)


def test_labels_whose_mass_is_not_one() -> None:
    model, images = usual().eval(), drawn(3, *SHAPE)
    labels = 2 * drawn(3, CLASSES, seed=1)
    loss = -(labels * model(images).log_softmax(-1)).sum(-1).mean()
    assert_same(sent(model, Batch(images, labels), LocalTraining()), gradient(model, loss), tolerance=1e-14)


def test_binary_cross_entropy() -> None:
    model, images = usual().eval(), drawn(3, *SHAPE)
    labels = (drawn(3, CLASSES, seed=1) < 0.4).double()
    p = model(images).sigmoid()
    loss = -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()
    training = LocalTraining(loss="binary-cross-entropy")
    assert_same(sent(model, Batch(images, labels), training), gradient(model, loss), tolerance=1e-15)


def test_eval_mode_is_the_gradient_of_the_model_in_eval_mode() -> None:
    model, batch = usual().train(), data()
    evaluated = copy.deepcopy(model).eval()
    expected = gradient(evaluated, F.cross_entropy(evaluated(batch.images), batch.labels))
    assert_same(sent(model, batch, LocalTraining(batchnorm="eval")), expected)


@pytest.mark.parametrize("batchnorm", ["batch", "batch-shared"])
def test_batch_mode_is_the_gradient_of_the_model_in_train_mode(batchnorm) -> None:
    model, batch = usual(), data()
    trained = copy.deepcopy(model).train()
    expected = gradient(trained, F.cross_entropy(trained(batch.images), batch.labels))
    assert_same(sent(model, batch, LocalTraining(batchnorm=batchnorm)), expected, tolerance=1e-15)
    assert max((expected[n] - sent(model, batch, LocalTraining())[n]).abs().max() for n in expected) > 1e-3


def test_batch_statistics_are_those_that_torch_would_move_to() -> None:
    model, images = usual(), drawn(4, *SHAPE)
    client = in_client_mode(model, LocalTraining(batchnorm="batch"))
    found = batch_statistics(client, parameters_of(client), images)
    torch_moves = copy.deepcopy(model).train()
    norms: dict[str, Any] = {name: torch_moves.get_submodule(name) for name in ("norm1", "norm2")}
    for layer in norms.values():
        layer.momentum = 1.0
    torch_moves(images)
    for name, layer in norms.items():
        assert torch.allclose(found[f"{name}.mean"], layer.running_mean, rtol=0, atol=1e-15)
        assert torch.allclose(found[f"{name}.var"], layer.running_var, rtol=0, atol=1e-15)
    assert not client.get_submodule("norm1")._forward_pre_hooks


@pytest.mark.parametrize("batchnorm", ["eval", "batch", "batch-shared"])
def test_the_model_itself_is_left_alone(batchnorm) -> None:
    model = usual().train()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    sent(model, data(), LocalTraining(steps=3, rate=0.1, batchnorm=batchnorm))
    assert model.training
    assert all(layer.training for layer in model.modules())
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert model.get_submodule("norm1").track_running_stats


def test_dropout_is_off() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, CLASSES)).double().train()
    batch = data()
    once, again = (sent(model, batch, LocalTraining()) for _ in range(2))
    assert_same(once, again)
    assert_same(once, gradient(model, F.cross_entropy(model.eval()(batch.images), batch.labels)))


def test_frozen_parameters_are_not_sent_and_do_not_move() -> None:
    model = usual()
    model.conv1.requires_grad_(False)
    update = sent(model, data(), LocalTraining(steps=2, rate=0.1, weight_decay=0.1))
    assert list(update) == [name for name, p in model.named_parameters() if p.requires_grad]
    assert "conv1.weight" not in update


class Logged(Defense):
    """Writes down when each stage runs, and what it was given."""

    def __init__(self) -> None:
        object.__setattr__(self, "log", [])

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        self.log.append("batch")  # type: ignore[attr-defined]
        return Batch(batch.images / 2, batch.labels)

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        def logged(params, batch: Batch) -> Update:
            self.log.append("gradient")  # type: ignore[attr-defined]
            return {name: 3 * g for name, g in compute(params, batch).items()}

        return logged

    def update(self, update: Update, rng: Generator) -> Update:
        self.log.append("update")  # type: ignore[attr-defined]
        return {name: -u for name, u in update.items()}


def test_a_defense_stands_around_every_step_and_at_the_end() -> None:
    model, batch, defense = usual(), data(), Logged()
    got = sent(model, batch, LocalTraining(steps=2, rate=0.1), defense)
    assert defense.log == ["batch", "gradient", "batch", "gradient", "update"]  # type: ignore[attr-defined]
    by_hand = sent(model, Batch(batch.images / 2, batch.labels), LocalTraining(steps=2, rate=0.3))
    assert_same(got, {name: -u for name, u in by_hand.items()}, tolerance=1e-14)


def test_an_update_can_be_differentiated_through_all_steps() -> None:
    """What the attacker needs: the slope of an update's entry by a pixel, against a finite difference."""
    model, labels = usual(), one_hot(1, 2)[0]
    training = LocalTraining(steps=3, rate=0.1, momentum=0.5, weight_decay=0.1)

    def entry(images: Tensor) -> Tensor:
        return sent(model, Batch(images, labels), training)["fc.weight"].square().sum()

    images, direction = drawn(2, *SHAPE), drawn(2, *SHAPE, seed=1) - 0.5
    slope = torch.func.grad(entry)(images).flatten() @ direction.flatten()
    h = 1e-6
    difference = (entry(images + h * direction) - entry(images - h * direction)) / (2 * h)
    assert slope.item() == pytest.approx(difference.item(), rel=1e-6)
