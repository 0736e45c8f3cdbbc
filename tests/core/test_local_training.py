"""Local training against torch: optimizers, schedule, clipping, loss, order and dropout; and slopes through it all."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scenes import CLASSES, SHAPE, drawn, one_hot, smooth, usual
from torch import Tensor, nn

from gradveil.core.augment import crop_and_flip
from gradveil.core.client import in_client_mode, local_steps, local_update, parameters_of, take_steps
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.local_optimizer import impulses
from gradveil.core.local_training import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update

OPTIMIZERS: dict[str, tuple[LocalTraining, Any, dict[str, Any]]] = {
    "sgd": (LocalTraining(momentum=0.9, dampening=0.3), torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}),
    "nesterov": (LocalTraining(momentum=0.9, nesterov=True), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (LocalTraining(optimizer="adam"), torch.optim.Adam, {}),
    "adam-betas": (
        LocalTraining(optimizer="adam", beta1=0.5, beta2=0.9, epsilon=1e-3),
        torch.optim.Adam,
        {"betas": (0.5, 0.9), "eps": 1e-3},
    ),
    "adamw": (LocalTraining(optimizer="adamw"), torch.optim.AdamW, {}),
    "rmsprop": (LocalTraining(optimizer="rmsprop", smoothing=0.9), torch.optim.RMSprop, {"alpha": 0.9}),
    "rmsprop-momentum": (LocalTraining(optimizer="rmsprop", momentum=0.5), torch.optim.RMSprop, {"momentum": 0.5}),
    "adagrad": (LocalTraining(optimizer="adagrad"), torch.optim.Adagrad, {}),
}
ADAPTIVE = ("adam", "adamw", "rmsprop", "rmsprop-momentum", "adagrad")


def data(examples: int = 4) -> Batch:
    return Batch(drawn(examples, *SHAPE), one_hot(1, examples)[0])


def sent(model: nn.Module, batch: Batch, training: LocalTraining, seed: int = 0) -> Update:
    client = in_client_mode(model, training)
    return local_update(client, parameters_of(client), batch, training, Defense(), Seed(seed).rng())


def trained_by_torch(model: nn.Module, batch: Batch, training: LocalTraining, make: Any, options: Any) -> Update:
    """What torch moves the weights by, in batches of two."""
    after = copy.deepcopy(model).eval()
    options = {"lr": training.rate, "weight_decay": training.weight_decay, **options}
    optimizer = make(after.parameters(), **options)
    weights = torch.tensor(training.class_weights, dtype=torch.float64) if training.class_weights else None
    for step in range(training.steps):
        rows = slice(2 * (step % 2), 2 * (step % 2) + 2)
        optimizer.zero_grad()
        labels = batch.labels[rows].argmax(-1)
        F.cross_entropy(
            after(batch.images[rows]), labels, weight=weights, label_smoothing=training.label_smoothing
        ).backward()
        if training.clip_gradients:
            torch.nn.utils.clip_grad_norm_(after.parameters(), training.clip_gradients)
        optimizer.param_groups[0]["lr"] = training.rate_at(step)
        optimizer.step()
    start, end = parameters_of(model), parameters_of(after)
    return {name: start[name] - end[name] for name in start}


def furthest(one: Update, other: Update) -> float:
    assert list(one) == list(other)
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_are_those_of_torch_optim(name: str, weight_decay: float) -> None:
    training, make, options = OPTIMIZERS[name]
    training = replace(training, steps=20, rate=1e-2, batch_size=2, weight_decay=weight_decay)
    model, batch = smooth(), data()
    expected = trained_by_torch(model, batch, training, make, options)
    assert furthest(sent(model, batch, training), expected) < 1e-10
    assert furthest(expected, trained_by_torch(model, batch, replace(training, steps=19), make, options)) > 1e-5


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize(
    "more",
    [
        {"clip_gradients": 0.05},
        {"label_smoothing": 0.1},
        {"class_weights": (1.0, 0.5, 3.0, 2.0, 0.1)},
        {"class_weights": (1.0, 0.5, 3.0, 2.0, 0.1), "label_smoothing": 0.2},
        {"schedule": "cosine"},
        {"schedule": "step", "decay_every": 3, "decay_factor": 0.5, "warmup": 4},
    ],
)
def test_clipping_losses_and_schedules_are_those_of_torch(name: str, more: dict[str, Any]) -> None:
    training, make, options = OPTIMIZERS[name]
    training = replace(training, steps=8, rate=1e-2, batch_size=2, **more)
    model, batch = smooth(), data()
    assert furthest(sent(model, batch, training), trained_by_torch(model, batch, training, make, options)) < 1e-10
    plain = replace(training, **{name: getattr(LocalTraining(), name) for name in more})
    assert furthest(sent(model, batch, training), sent(model, batch, plain)) > 1e-6


@pytest.mark.parametrize(("schedule", "make"), [
    ({"schedule": "cosine"}, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=7)),
    ({"schedule": "step", "decay_every": 2, "decay_factor": 0.5},
     lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=2, gamma=0.5)),
    ({"warmup": 4}, lambda o: torch.optim.lr_scheduler.LinearLR(o, start_factor=0.25, total_iters=3)),
])  # fmt: skip
def test_rates_are_those_of_torchs_schedulers(schedule: dict[str, Any], make: Any) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler, rates = make(optimizer), []
    for _ in range(7):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    training = LocalTraining(steps=7, rate=0.3, **schedule)
    assert [training.rate_at(step) for step in range(7)] == pytest.approx(rates, rel=1e-12)


@pytest.mark.parametrize("more", [{}, {"clip_gradients": 0.05}, {"class_weights": (1.0, 0.5, 3.0, 2.0, 0.1)}])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slopes_through_the_steps_are_finite_differences(name: str, more: dict[str, Any]) -> None:
    """With an epsilon as large as the gradients, or a difference would have to be taken inside a kink."""
    training = replace(OPTIMIZERS[name][0], steps=3, rate=0.1, weight_decay=0.1, epsilon=1e-2, **more)
    model, labels = smooth(), one_hot(1, 2)[0]

    def entry(images: Tensor) -> Tensor:
        return torch.stack([u.sin().sum() for u in sent(model, Batch(images, labels), training).values()]).sum()

    images, direction = drawn(2, *SHAPE), drawn(2, *SHAPE, seed=1) - 0.5
    slope = torch.func.grad(entry)(images).flatten() @ direction.flatten()
    h = 1e-5
    difference = (entry(images + h * direction) - entry(images - h * direction)) / (2 * h)
    assert slope.item() == pytest.approx(difference.item(), rel=1e-5)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_a_gradient_of_zeros_has_a_finite_slope(name: str) -> None:
    """A step from g = 0 moves by g / (|g| + epsilon) or the like: the slope is 1 / epsilon there, or a part of it."""
    training = replace(OPTIMIZERS[name][0], steps=1, epsilon=1e-2)

    def moved(images: Tensor) -> Tensor:
        data = Batch(images, images)
        steps = local_take(training, data)
        return steps.sum()

    slope = torch.func.grad(moved)(torch.zeros(1, 3, dtype=torch.float64))
    assert slope.isfinite().all()
    assert slope.abs().min() > 1.0


def local_take(training: LocalTraining, data: Batch) -> Tensor:
    """One step whose gradient is the picture itself."""
    params = {"w": torch.zeros(3, dtype=torch.float64)}
    *_, last = take_steps(params, data, training, lambda batch: batch, lambda here, batch: {"w": batch.images.sum(0)})
    return last.update["w"]


def test_dead_units_do_not_spoil_the_slope_of_adam() -> None:
    """A layer of ReLU that is off gets gradients of exact zeros."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, CLASSES)).double()
    model[1].bias.data[:4] = -100
    training, labels = LocalTraining(optimizer="adam", steps=2, rate=1e-3), one_hot(1, 2)[0]
    slope = torch.func.grad(lambda x: sent(model, Batch(x, labels), training)["1.weight"].square().sum())(
        drawn(2, *SHAPE)
    )
    assert slope.isfinite().all()
    assert slope.any()


@pytest.mark.parametrize(
    "training",
    [
        LocalTraining(steps=4, rate=0.3, momentum=0.5),
        LocalTraining(steps=4, rate=0.3, momentum=0.5, dampening=0.2),
        LocalTraining(steps=4, rate=0.3, momentum=0.5, nesterov=True, schedule="cosine"),
        LocalTraining(steps=4, warmup=3),
    ],
)
def test_impulses_are_what_the_update_grows_by(training: LocalTraining) -> None:
    for at, expected in enumerate(impulses(training)):
        counter = iter(range(training.steps))

        def gradient(here: Any, batch: Batch, at: int = at, counter: Any = counter) -> Update:
            return {"w": torch.tensor([float(next(counter) == at)], dtype=torch.float64)}

        *_, last = take_steps({"w": torch.zeros(1, dtype=torch.float64)}, data(), training, lambda b: b, gradient)
        assert last.update["w"].item() == pytest.approx(expected, rel=1e-12)


def rows_fed(training: LocalTraining, seed: int = 0, examples: int = 5) -> list[list[int]]:
    """Which pictures each step takes."""
    model = in_client_mode(smooth(), training)
    batch = data(examples)
    steps = local_steps(model, parameters_of(model), batch, training, Defense(), Seed(seed).rng())
    found = []
    for step in steps:
        same = (step.batch.images[:, None] == batch.images[None]).flatten(2).all(-1)
        found.append(same.int().argmax(1).tolist())
    return found


def test_epochs_are_counted_for_the_pictures_that_a_client_has() -> None:
    training = LocalTraining(epochs=2, batch_size=2)
    assert rows_fed(training) == [[0, 1], [2, 3], [4]] * 2
    assert training.for_examples(4).steps == 4


def test_an_unknown_order_is_another_permutation_in_every_epoch() -> None:
    training = LocalTraining(epochs=2, batch_size=2, order="unknown")
    fed = rows_fed(training)
    epochs = [list(chain(*fed[:3])), list(chain(*fed[3:]))]
    assert [sorted(epoch) for epoch in epochs] == [[0, 1, 2, 3, 4]] * 2
    assert epochs[0] != epochs[1]
    assert fed == rows_fed(training)
    assert fed != rows_fed(training, seed=1)
    assert rows_fed(training.for_examples(5).as_attacked()) == [[0, 1, 2, 3, 4]] * 6


def test_dropout_draws_by_the_clients_stream_and_is_off_for_the_attacker() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, CLASSES)).double()
    training, batch = LocalTraining(dropout="on", steps=2, rate=0.1), data()
    one, again, other = (sent(model, batch, training, seed) for seed in (0, 0, 1))
    assert furthest(one, again) == 0
    assert furthest(one, other) > 1e-3
    assert (
        furthest(sent(model, batch, training.as_attacked()), sent(model, batch, LocalTraining(steps=2, rate=0.1))) == 0
    )


def test_dropout_as_a_function_is_drawn_too() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(192, CLASSES).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.dropout(x.flatten(1), 0.5, self.training))

    model, batch = Dropping(), data()
    assert furthest(sent(model, batch, LocalTraining(dropout="on")), sent(model, batch, LocalTraining())) > 1e-3


def test_dropout_keeps_its_share_and_its_mean() -> None:
    model = nn.Sequential(nn.Dropout2d(0.25), nn.Flatten(), nn.Linear(192, CLASSES, bias=False)).double()
    images = torch.ones(400, *SHAPE, dtype=torch.float64)
    update = sent(model, Batch(images, one_hot(1, 400)[0]), LocalTraining(dropout="on"))
    plain = sent(model, Batch(images, one_hot(1, 400)[0]), LocalTraining())
    ratio = update["2.weight"].abs().sum() / plain["2.weight"].abs().sum()
    assert 0.8 < ratio.item() < 1.3
    assert furthest(update, plain) > 1e-6


def test_crops_and_flips_are_parts_of_the_pictures() -> None:
    images = drawn(40, 3, 9, 7)
    made = crop_and_flip(images, Seed().rng())
    assert torch.equal(made, crop_and_flip(images, Seed().rng()))
    assert made.shape == images.shape
    padded = F.pad(images, (4, 4, 4, 4))
    crops = padded.unfold(2, 9, 1).unfold(3, 7, 1).flatten(2, 3).transpose(1, 2)  # [picture, place, channel, ...]
    either = [(crops == one[:, None]).flatten(2).all(-1) for one in (made, made.flip(3))]
    assert all(found.any(1).float().mean() > 0.2 for found in either)
    assert (either[0] | either[1]).any(1).all()
    assert len({int(place) for place in (either[0] | either[1]).int().argmax(1)}) > 20


def test_crops_are_drawn_by_the_client_and_unknown_to_the_attacker() -> None:
    training, batch = LocalTraining(augment="crop-flip", steps=2, rate=0.1), data()
    one, again, other = (sent(smooth(), batch, training, seed) for seed in (0, 0, 1))
    assert furthest(one, again) == 0
    assert furthest(one, other) > 1e-6
    assert (
        furthest(sent(smooth(), batch, training.as_attacked()), sent(smooth(), batch, LocalTraining(steps=2, rate=0.1)))
        == 0
    )


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_update_is_rounded_as_the_client_says(precision: Any, dtype: torch.dtype) -> None:
    model, batch = smooth(), data()
    plain = sent(model, batch, LocalTraining(steps=2, rate=0.1))
    rounded = sent(model, batch, LocalTraining(steps=2, rate=0.1, update_precision=precision))
    assert all(torch.equal(rounded[name], u.to(dtype).double()) for name, u in plain.items())


@pytest.mark.parametrize(
    "wrong",
    [
        {"optimizer": "adam", "momentum": 0.9},
        {"nesterov": True},
        {"dampening": 0.1},
        {"nesterov": True, "momentum": 0.9, "dampening": 0.1},
        {"loss": "binary-cross-entropy", "label_smoothing": 0.1},
        {"class_weights": (1.0, -1.0)},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LocalTraining(**wrong)


def test_too_few_class_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match="class_weights: must be 5 numbers, one for each class, got 2"):
        sent(usual(), data(), LocalTraining(class_weights=(1.0, 2.0)))
