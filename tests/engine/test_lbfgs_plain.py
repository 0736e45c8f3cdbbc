"""L-BFGS without a line search against `torch.optim.LBFGS`, iterate by iterate."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.engine.lbfgs_plain import PlainLbfgs

F64 = torch.float64
ITERATIONS = 8  # of 20 updates each: more than the memory of 100 holds
Problem = Callable[[Tensor], Tensor]


def bowl(x: Tensor) -> Tensor:
    """Smooth, convex, not quadratic."""
    return torch.logsumexp(torch.cat([x, -x + 0.5], 1), -1) + 0.1 * (x**2 * torch.arange(1, 7)).sum(-1)


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(-1)


def starts(trials: int = 3, size: int = 6) -> Tensor:
    return torch.randn(trials, size, generator=torch.Generator().manual_seed(0), dtype=F64)


def theirs(f: Problem, start: Tensor, signed: bool, **options: Any) -> list[Tensor]:
    """The points of one trial at which torch asks for a value, in order, over all iterations."""
    x = start.clone().requires_grad_()
    optimizer, points = torch.optim.LBFGS([x], **options), []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = f(x[None]).sum()
        loss.backward()
        if signed:
            assert x.grad is not None
            x.grad.sign_()
        points.append(x.detach().clone())
        return loss

    for _ in range(ITERATIONS):
        optimizer.step(closure)  # type: ignore[arg-type]
    return points


def ours(f: Problem, x: Tensor, steps: int, optimizer: PlainLbfgs) -> Tensor:
    """The points of all trials, [value, trial, number]."""
    z, state, points = {"x": x}, optimizer.init({"x": x}), []
    for i in range(steps):
        point = z["x"].detach().requires_grad_()
        value = f(point)
        grad = torch.autograd.grad(value.sum(), point)[0]
        points.append(point.detach())
        z, state = optimizer.step({"x": point.detach()}, value.detach(), {"x": grad}, state, torch.tensor(i / steps))
    return torch.stack(points)


def furthest(problem: Problem, optimizer: PlainLbfgs, **options: Any) -> float:
    """How far any point of any trial lies from torch's."""
    x = starts()
    expected = [torch.stack(theirs(problem, one, optimizer.signed, lr=optimizer.rate, **options)) for one in x]
    got = ours(problem, x, max(map(len, expected)), optimizer)
    assert all(len(points) >= ITERATIONS for points in expected)
    return max((got[: len(points), i] - points).abs().max().item() for i, points in enumerate(expected))


@pytest.mark.parametrize(
    "optimizer",
    [PlainLbfgs(rate=1.0), PlainLbfgs(rate=0.1), PlainLbfgs(rate=0.1, signed=True), PlainLbfgs(rate=1e-4)],
    ids=lambda o: f"{o.rate}{' signed' * o.signed}",
)
def test_every_point_is_torchs(optimizer: PlainLbfgs) -> None:
    assert furthest(bowl, optimizer) < 1e-9


@pytest.mark.parametrize("signed", [False, True])
def test_every_point_is_torchs_in_a_curved_valley(signed: bool) -> None:
    assert furthest(rosenbrock, PlainLbfgs(rate=1e-3, signed=signed, updates=5), max_iter=5) < 1e-9


def test_a_short_memory_and_short_iterations_are_torchs_too() -> None:
    assert furthest(bowl, PlainLbfgs(rate=0.5, memory=3, updates=4), history_size=3, max_iter=4) < 1e-9


def test_an_iteration_that_is_broken_off_looks_again_where_it_stands() -> None:
    """torch leaves an iteration when the value hardly changes, and the next one begins with a value at that point."""
    x = 1e-4 * starts(1)

    def f(x: Tensor) -> Tensor:
        return 1e-3 * (x**2).sum(-1)  # below the tolerance on values, above that on the gradient

    points = theirs(f, x[0], False, lr=1e-3)
    repeated = [bool((a == b).all()) for a, b in pairwise(points)]
    assert any(repeated)
    assert (ours(f, x, len(points), PlainLbfgs(rate=1e-3))[:, 0] - torch.stack(points)).abs().max() < 1e-12


def test_a_trial_rests_at_the_bottom() -> None:
    x = torch.zeros(2, 6, dtype=F64)
    x[1] = 1.0
    points = ours(lambda x: (x**2).sum(-1), x, 30, PlainLbfgs())
    assert (points[:, 0] == 0).all()
    assert points[-1, 1].abs().max() < 1e-7
    assert torch.equal(points[-1, 1], points[-2, 1])


def test_nan_stays_in_its_trial() -> None:
    x = starts()
    clean = ours(bowl, x, 40, PlainLbfgs(rate=0.1))
    sick = x.clone()
    sick[1, 0] = torch.nan
    assert torch.equal(ours(bowl, sick, 40, PlainLbfgs(rate=0.1))[:, [0, 2]], clean[:, [0, 2]])


def test_a_step_never_asks_for_a_number() -> None:
    """Meta tensors hold no numbers: a branch or an .item() on one raises, and a CUDA graph could not be captured."""
    z = {"x": torch.empty(3, 5, device="meta")}
    value, progress = torch.empty(3, device="meta"), torch.empty((), device="meta")
    optimizer = PlainLbfgs(memory=4)
    state = optimizer.init(z)
    moved, after = optimizer.step(z, value, z, state, progress)
    assert moved["x"].shape == (3, 5)
    assert {n: (s.shape, s.dtype) for n, s in after.items()} == {n: (s.shape, s.dtype) for n, s in state.items()}


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"memory": 0}, {"updates": 0}])
def test_out_of_range(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="lbfgs"):
        PlainLbfgs(**wrong)
