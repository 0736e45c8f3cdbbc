"""Batched L-BFGS against theorems and against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.engine.lbfgs import Lbfgs

F64 = torch.float64
DEFAULT = Lbfgs()


def rosenbrock(x: Tensor) -> Tensor:
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(-1)


def quadratic(size: int, condition: float) -> tuple:
    """A convex bowl per trial, 1/2 (x-c)' A (x-c), and its bottom."""
    rng = torch.Generator().manual_seed(3)
    turn = torch.linalg.qr(torch.randn(size, size, generator=rng, dtype=F64)).Q
    bowl = turn @ torch.diag(torch.logspace(0, torch.tensor(condition).log10().item(), size, dtype=F64)) @ turn.T
    center = torch.randn(size, generator=rng, dtype=F64)
    return lambda x: 0.5 * torch.einsum("ti,ij,tj->t", x - center, bowl.to(x), x - center), center


def starts(trials: int, size: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(trials, size, generator=torch.Generator().manual_seed(0), dtype=F64).to(dtype)


def minimize(f, x: Tensor, steps: int, optimizer: Lbfgs = DEFAULT):
    """As the engine runs it: the last point and state, and the best value of every trial."""
    z, state = {"x": x}, optimizer.init({"x": x})
    best = torch.full_like(x[:, 0], torch.inf)
    for i in range(steps):
        point = z["x"].detach().requires_grad_()
        value = f(point)
        grad = torch.autograd.grad(value.sum(), point)[0]
        best = torch.where(value.detach() < best, value.detach(), best)
        z, state = optimizer.step({"x": point.detach()}, value.detach(), {"x": grad}, state, torch.tensor(i / steps))
    return z["x"], state, best


@pytest.mark.parametrize("size", [2, 10])
def test_rosenbrock_is_solved_to_tolerance(size: int) -> None:
    x, state, best = minimize(rosenbrock, 1 + 0.3 * starts(6, size), 200)
    assert state["done"].all()
    assert torch.allclose(x, torch.ones_like(x), atol=1e-8)
    assert best.max() < 1e-16


def test_quadratic_bottom_is_found() -> None:
    f, center = quadratic(30, 1e2)
    x, state, _ = minimize(f, starts(5, 30), 300)
    assert state["done"].all()
    assert (x - center).abs().max() < 1e-8


@pytest.mark.parametrize("problem", [rosenbrock, quadratic(6, 100.0)[0]])
def test_a_trial_among_others_is_the_trial_alone(problem) -> None:
    x = starts(5, 6)
    together = minimize(problem, x, 60)[0]
    alone = torch.cat([minimize(problem, one, 60)[0] for one in x.split(1)])
    assert (together - alone).abs().max() < 1e-12


def test_same_minimum_as_torch() -> None:
    def f(x: Tensor) -> Tensor:  # smooth, convex, not quadratic
        return torch.logsumexp(torch.cat([x, -x + 0.5], 1), -1) + 0.1 * (x**2 * torch.arange(1, 9)).sum(-1)

    ours = minimize(f, starts(1, 8), 120)[0]
    theirs = starts(1, 8).requires_grad_()
    reference = torch.optim.LBFGS(
        [theirs], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        reference.zero_grad()
        loss = f(theirs).sum()
        loss.backward()
        return loss

    reference.step(closure)  # type: ignore[arg-type]
    assert torch.allclose(ours, theirs.detach(), atol=1e-7)


def test_needs_about_as_many_values_as_torch() -> None:
    start = torch.tensor([[-1.2, 1.0]], dtype=F64)
    best = minimize(rosenbrock, start, 60)[2]
    theirs = start.clone().requires_grad_()
    reference = torch.optim.LBFGS([theirs], max_iter=1000, max_eval=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        reference.zero_grad()
        loss = rosenbrock(theirs).sum()
        loss.backward()
        return loss

    reference.step(closure)  # type: ignore[arg-type]
    assert best.item() <= max(10 * rosenbrock(theirs).item(), 1e-10)


def test_nan_disturbs_nobody_else() -> None:
    x = starts(4, 4)
    clean = minimize(rosenbrock, x, 50)[0]
    sick = x.clone()
    sick[2, 1] = torch.nan
    out, state, best = minimize(rosenbrock, sick, 50)
    others = [0, 1, 3]
    assert torch.equal(out[others], clean[others])
    assert state["done"][2]
    assert best[2].isinf()


def test_a_forbidden_region_is_backed_out_of() -> None:
    def f(x: Tensor) -> Tensor:  # -log is NaN for negative numbers; the first step lands there
        return (x - x.log()).sum(-1)

    x, _, best = minimize(f, torch.full((2, 3), 0.01, dtype=F64), 80, Lbfgs(rate=10.0))
    assert torch.allclose(x, torch.ones_like(x), atol=1e-7)
    assert best.isfinite().all()


def test_done_trials_do_not_move() -> None:
    f, center = quadratic(4, 10.0)
    x = torch.stack([center, center + 1, center - 5])
    optimizer = Lbfgs()
    first, state, _ = minimize(f, x, 1, optimizer)
    assert state["done"].tolist() == [True, False, False]
    assert torch.equal(first[0], center)
    z = {"x": first}
    for _ in range(5):  # nonsense values for everybody: a done trial does not listen
        z, state = optimizer.step(
            z, torch.zeros(3, dtype=F64), {"x": torch.ones(3, 4, dtype=F64)}, state, torch.zeros(())
        )
        assert torch.equal(z["x"][0], center)
    assert not torch.equal(z["x"][1], first[1])


def test_a_trial_without_descent_gives_up_at_its_base() -> None:
    x = starts(2, 3)
    optimizer = Lbfgs(tries=5)
    z, state = {"x": x}, optimizer.init({"x": x})
    for _ in range(12):  # the gradient promises a descent that never comes
        rise = (z["x"] - x).abs().sum(-1)
        z, state = optimizer.step(z, rise, {"x": torch.ones_like(x)}, state, torch.zeros(()))
    assert state["done"].all()
    assert torch.equal(z["x"], x)


def test_float32_reaches_its_resolution() -> None:
    x, _, best = minimize(rosenbrock, 1 + 0.3 * starts(4, 4, torch.float32), 200)
    assert x.dtype == torch.float32
    assert best.max() < 1e-9


def test_slopes_go_on_where_values_are_rounded_off() -> None:
    rng = torch.Generator().manual_seed(0)
    matrix = torch.randn(20, 20, generator=rng) @ torch.diag(torch.logspace(0, -2, 20))
    target = matrix @ torch.randn(20, generator=rng)

    def angle(x: Tensor) -> Tensor:
        return 1 - torch.cosine_similarity(x @ matrix.to(x).T, target.to(x).unsqueeze(0))

    blunt, sharp = (
        angle(minimize(angle, starts(8, 20, torch.float32), 300, Lbfgs(rounding=rounding))[0].double()).mean()
        for rounding in (0.0, 1e-6)
    )
    assert sharp < 0.1 * blunt


def test_a_box_is_respected_and_still_descends() -> None:
    f, center = quadratic(6, 10.0)
    low, high = center - 1, center - 0.5  # the bottom lies outside
    x, optimizer = low.expand(3, 6) + 0.4 * starts(3, 6).sigmoid(), Lbfgs()
    z, state = {"x": x}, optimizer.init({"x": x})
    for _ in range(200):
        point = z["x"].detach().requires_grad_()
        value = f(point)
        grad = torch.autograd.grad(value.sum(), point)[0]
        z, state = optimizer.step({"x": point.detach()}, value.detach(), {"x": grad}, state, torch.zeros(()))
        z = {"x": torch.maximum(torch.minimum(z["x"], high), low)}
    projected = x.clone()
    for _ in range(1000):  # projected gradient descent finds the bottom of a convex problem in a box
        point = projected.detach().requires_grad_()
        grad = torch.autograd.grad(f(point).sum(), point)[0]
        projected = torch.maximum(torch.minimum(projected - 0.1 * grad, high), low)
    assert (f(z["x"]) - f(projected)).max() < 1e-2 * (f(x) - f(projected)).min()


def test_a_step_never_asks_for_a_number() -> None:
    """Meta tensors hold no numbers: a branch or an .item() on one raises, and a CUDA graph could not be captured."""
    z = {"x": torch.empty(3, 5, device="meta")}
    value, progress = torch.empty(3, device="meta"), torch.empty((), device="meta")
    optimizer = Lbfgs()
    state = optimizer.init(z)
    moved, after = optimizer.step(z, value, z, state, progress)
    assert moved["x"].shape == (3, 5)
    assert {n: (s.shape, s.dtype) for n, s in after.items()} == {n: (s.shape, s.dtype) for n, s in state.items()}


def test_several_latents_of_any_shape() -> None:
    z = {"pixels": torch.ones(2, 3, 4, 4, dtype=F64), "shift": torch.ones(2, 2, dtype=F64)}
    optimizer = Lbfgs()
    state = optimizer.init(z)
    for _ in range(20):
        value = sum(0.5 * (x.flatten(1) ** 2).sum(-1) for x in z.values())
        z, state = optimizer.step(z, torch.as_tensor(value), z, state, torch.zeros(()))
    assert z["pixels"].shape == (2, 3, 4, 4)
    assert max(x.abs().max() for x in z.values()) < 1e-9


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"memory": 0}, {"tries": 0}, {"armijo": 0.95}, {"rounding": -1.0}])
def test_out_of_range(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="lbfgs"):
        Lbfgs(**wrong)
