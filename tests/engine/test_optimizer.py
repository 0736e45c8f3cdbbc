"""Optimizers and schedules against torch.optim; the space of pixels."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scenes import MEAN, STD, drawn, one_picture, seen_in
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.engine.optimizer import Adam, Constant, CosineDecay, Optimizer, Schedule, Sgd, Steps
from gradveil.engine.spaces.space import Pixels

STEPS = 20
LEVELS: dict[str, tuple[Schedule, Callable[[int], float]]] = {
    "constant": (Constant(), lambda step: 1.0),
    "steps": (Steps(), lambda step: 0.1 ** sum(step >= mark * STEPS for mark in (3 / 8, 5 / 8, 7 / 8))),
    "cosine": (CosineDecay(), lambda step: 0.5 * (1 + math.cos(math.pi * step / STEPS))),
    "cosine to a floor": (CosineDecay(0.2), lambda step: 0.2 + 0.4 * (1 + math.cos(math.pi * step / STEPS))),
}


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(1)


def slope(x: Tensor, signed: bool) -> Tensor:
    x = x.detach().requires_grad_()
    grad = torch.autograd.grad(rosenbrock(x).sum(), x)[0]
    return grad.sign() if signed else grad


def ours(optimizer: Optimizer, x: Tensor) -> Tensor:
    z, state = {"x": x}, optimizer.init({"x": x})
    for step in range(STEPS):
        progress = torch.tensor(step / STEPS, dtype=torch.float64)
        z, state = optimizer.step(z, rosenbrock(z["x"]), {"x": slope(z["x"], False)}, state, progress)
    return z["x"]


def theirs(make: Callable[..., torch.optim.Optimizer], x: Tensor, level: Callable[[int], float], signed: bool):
    x = x.clone().requires_grad_()
    optimizer = make([x])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, level)
    for _ in range(STEPS):
        x.grad = slope(x, signed)
        optimizer.step()
        scheduler.step()
    return x.detach()


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("schedule", "level"), LEVELS.values(), ids=LEVELS)
def test_adam_is_torchs(schedule: Schedule, level: Callable[[int], float], signed: bool) -> None:
    x = drawn(3, 5)
    expected = theirs(lambda p: torch.optim.Adam(p, 0.05), x, level, signed)
    assert (ours(Adam(rate=0.05, signed=signed, schedule=schedule), x) - expected).abs().max() < 1e-12
    assert (expected - x).abs().max() > 0.05


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.9, True), (0.9, False), (0.0, False)])
@pytest.mark.parametrize(("schedule", "level"), LEVELS.values(), ids=LEVELS)
def test_sgd_is_torchs(schedule, level, momentum: float, nesterov: bool, signed: bool) -> None:
    x = drawn(3, 5)
    expected = theirs(lambda p: torch.optim.SGD(p, 1e-4, momentum, nesterov=nesterov), x, level, signed)
    optimizer = Sgd(rate=1e-4, momentum=momentum, nesterov=nesterov, signed=signed, schedule=schedule)
    assert (ours(optimizer, x) - expected).abs().max() < 1e-13
    assert (expected - x).abs().max() > 1e-4


def test_steps_fall_at_the_milestones_of_torch() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 1.0)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3 * 300, 5 * 300, 7 * 300], gamma=0.1)
    for step in range(2400):
        if step % 300 in (0, 1, 299):
            expected = scheduler.get_last_lr()[0]
            assert Steps()(torch.tensor(step) / 2400).item() == pytest.approx(expected, rel=1e-5), step
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("optimizer", [Adam(signed=True), Adam(), Sgd(rate=1e-4)])
def test_every_trial_moves_on_its_own(optimizer: Optimizer) -> None:
    x = drawn(3, 5)
    assert torch.equal(ours(optimizer, x)[1:2], ours(optimizer, x[1:2]))


# pixels

SEEN = seen_in(one_picture(1))


def test_normalized_pixels_round_trip() -> None:
    space = Pixels().bind(SEEN)
    pictures = drawn(2, 1, 3, 8, 8)
    mean, std = (torch.tensor(c, dtype=torch.float64).view(3, 1, 1) for c in (MEAN, STD))
    z = {"pixels": (pictures - mean) / std}
    assert torch.allclose(space.decode(z), pictures, atol=1e-7)  # the model's constants are float32 numbers
    assert torch.allclose(space.reveal(z), pictures, atol=1e-7)
    assert space.smooth(z) is z["pixels"]
    assert torch.equal(space.constrain(z)["pixels"], z["pixels"])


def test_plain_pixels_are_the_pictures() -> None:
    pictures = drawn(2, 1, 3, 8, 8)
    assert torch.equal(Pixels(normalized=False).bind(SEEN).decode({"pixels": pictures}), pictures)


@pytest.mark.parametrize("normalized", [True, False])
def test_the_box_is_that_of_pictures(normalized: bool) -> None:
    z = {"pixels": 20 * (drawn(2, 1, 3, 8, 8) - 0.5)}
    space = Pixels(normalized=normalized).bind(SEEN)
    inside = space.decode(space.constrain(z))
    assert inside.min().item() == pytest.approx(0, abs=1e-12)
    assert inside.max().item() == pytest.approx(1, abs=1e-12)
    assert torch.allclose(inside, space.reveal(z))
    free = Pixels(normalized=normalized, boxed=False).bind(SEEN)
    assert free.constrain(z) is z
    assert free.reveal(z).max() == 1


@pytest.mark.parametrize(("start", "level"), [("gray", 0.5), ("black", 0.0)])
def test_plain_starts(start, level: float) -> None:
    space = Pixels(start=start).bind(SEEN)
    assert torch.allclose(space.decode(space.init(Seed(0), "a", 0)), torch.tensor(level).double(), atol=1e-7)


@pytest.mark.parametrize("start", ["normal", "uniform"])
def test_random_starts_belong_to_client_restart_and_seed(start) -> None:
    space = Pixels(start=start).bind(SEEN)
    first = space.init(Seed(0), "a", 0)["pixels"]
    assert torch.equal(space.init(Seed(0), "a", 0)["pixels"], first)
    for other in (space.init(Seed(0), "b", 0), space.init(Seed(0), "a", 1), space.init(Seed(1), "a", 0)):
        assert not torch.equal(other["pixels"], first)


def test_a_uniform_start_is_a_picture() -> None:
    space = Pixels(start="uniform").bind(SEEN)
    pictures = space.decode(space.init(Seed(0), "a", 0))
    assert 0 <= pictures.min() < 0.05
    assert 0.95 < pictures.max() <= 1
