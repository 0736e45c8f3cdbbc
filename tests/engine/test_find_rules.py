"""Rules of the sweep against automatic differentiation, one operation at a time."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from scenes import drawn
from torch import Tensor, nn

from gradveil.engine.sweep import activations
from gradveil.engine.sweep import rule as rules
from gradveil.engine.sweep.attention import Product, Shares
from gradveil.engine.sweep.normalization import Standardized
from gradveil.engine.sweep.patches import ChannelsFirst, ChannelsLast, Geometry
from gradveil.engine.sweep.rule import Rule


def standardized(x: Tensor, over: tuple[int, ...], eps: float) -> Tensor:
    """By hand: torch's own layer_norm has a wrong second derivative in forward mode."""
    variance, center = torch.var_mean(x, over, correction=0, keepdim=True)
    return (x - center) / (variance + eps).sqrt()


OPERATIONS = {
    "relu": (torch.relu, activations.Gate(torch.relu)),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.2), activations.Gate(lambda x: F.leaky_relu(x, 0.2), 0.2)),
    "sigmoid": (torch.sigmoid, activations.Curve(torch.sigmoid, activations.sigmoid_slopes)),
    "tanh": (torch.tanh, activations.Curve(torch.tanh, activations.tanh_slopes)),
    "gelu": (F.gelu, activations.Curve(F.gelu, activations.gelu_slopes)),
    "silu": (F.silu, activations.Curve(F.silu, activations.silu_slopes)),
    "window": (lambda x: F.hardtanh(x, -0.2, 0.3), activations.Window(-0.2, 0.3)),
    "shares": (lambda x: x.softmax(1), Shares(1)),
    "standardized": (lambda x: standardized(x, (-1,), 0.1), Standardized(1, 0.1)),
    "standardized over two axes": (lambda x: standardized(x, (-2, -1), 1e-5), Standardized(2, 1e-5)),
    "turned": (lambda x: x.transpose(1, 3), rules.LinearMap(lambda x: x.transpose(1, 3))),
    "average of other sizes": (lambda x: F.adaptive_avg_pool2d(x, 3), rules.LinearMap(nn.AdaptiveAvgPool2d(3))),
    "average": (lambda x: F.avg_pool2d(x, 2), rules.LinearMap(nn.AvgPool2d(2))),
    "flatten": (lambda x: x.flatten(1), rules.Reshape(lambda x: x.flatten(1))),
    "max": (lambda x: F.max_pool2d(x, 2), rules.MaxPool(nn.MaxPool2d(2), ([2, 2], [2, 2], [0, 0], [1, 1], False))),
    "anything": (lambda x: (x * x).sin(), Rule(lambda x: (x * x).sin())),
}


@pytest.mark.parametrize(("function", "rule"), OPERATIONS.values(), ids=OPERATIONS)
def test_the_four_sweeps_of_an_operation(function, rule: Rule) -> None:
    x, dot = (drawn(2, 3, 4, 4, seed=s) - 0.5 for s in (0, 1))
    out, cache = rule.forward(x)
    assert torch.allclose(out, function(x))
    delta, mu = (drawn(*out.shape, seed=s) - 0.5 for s in (2, 3))
    assert torch.allclose(rule.backward(cache, delta)[0], torch.func.vjp(function, x)[1](delta)[0])  # type: ignore[arg-type]
    assert torch.allclose(rule.tangent(cache, (dot,)), torch.func.jvp(function, (x,), (dot,))[1])  # type: ignore[arg-type]

    def phi(x: Tensor) -> Tensor:
        """What the adjoint is the slope of: mu walks with the value, delta with the tangent."""
        value, moved = torch.func.jvp(function, (x,), (dot,))[:2]
        return (mu * value).sum() + (delta * moved).sum()

    got = rule.adjoint(cache, (dot,), delta, mu)[0]
    assert torch.allclose(got, torch.func.grad(phi)(x))  # type: ignore[arg-type]
    assert rule.tangent(cache, (None,)) is None
    assert torch.allclose(rule.adjoint(cache, (None,), delta, mu)[0], rule.backward(cache, mu)[0])  # type: ignore[arg-type]


OF_TWO = {"product": (torch.matmul, Product()), "joined": (lambda a, b: torch.cat([a, b], 2), rules.Joined(2))}


@pytest.mark.parametrize(("function", "rule"), OF_TWO.values(), ids=OF_TWO)
@pytest.mark.parametrize("moving", [(True, True), (True, False), (False, True), (False, False)])
def test_the_four_sweeps_of_an_operation_on_two_values(function, rule: Rule, moving: tuple[bool, bool]) -> None:
    pair, still = [tuple(drawn(2, 3, 4, 4, seed=s) - 0.5 for s in seeds) for seeds in ((0, 1), (2, 3))]
    dots = tuple(dot if moves else torch.zeros_like(dot) for dot, moves in zip(still, moving, strict=True))
    given = tuple(dot if moves else None for dot, moves in zip(still, moving, strict=True))
    out, cache = rule.forward(*pair)
    assert torch.equal(out, function(*pair))
    delta, mu = (drawn(*out.shape, seed=s) - 0.5 for s in (4, 5))

    def phi(*pair: Tensor) -> Tensor:
        value, moved = torch.func.jvp(function, pair, dots)[:2]
        return (mu * value).sum() + (delta * moved).sum()

    tangent = rule.tangent(cache, given)
    assert (tangent is None) == (not any(moving))
    if tangent is not None:
        assert torch.allclose(tangent, torch.func.jvp(function, pair, dots)[1])
    for place in (0, 1):
        backward, adjoint = rule.backward(cache, delta)[place], rule.adjoint(cache, given, delta, mu)[place]
        assert torch.allclose(backward, torch.func.vjp(function, *pair)[1](delta)[place])  # type: ignore[arg-type]
        assert torch.allclose(adjoint, torch.func.grad(phi, argnums=place)(*pair))  # type: ignore[arg-type]


def test_two_threads_in_a_tangent_at_once() -> None:
    """Chunks run side by side in threads. The second one is inside when the first one leaves."""
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    x, found = torch.ones(2, 3), {}

    def first(x: Tensor) -> Tensor:
        first_in.set()
        second_in.wait(600)
        return 2 * x

    def second(x: Tensor) -> Tensor:
        second_in.set()
        first_out.wait(600)
        return 2 * x

    def run_first() -> None:
        found["first"] = Rule(first).tangent((x,), (x,))
        first_out.set()

    def run_second() -> None:
        first_in.wait(600)
        found["second"] = Rule(second).tangent((x,), (x,))

    threads = [threading.Thread(target=run) for run in (run_first, run_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(found["first"], 2 * x)
    assert torch.equal(found["second"], 2 * x)


CONVOLUTIONS = [
    nn.Conv2d(4, 5, 3, padding=1),
    nn.Conv2d(4, 5, 1),
    nn.Conv2d(4, 5, 1, stride=2),
    nn.Conv2d(4, 5, (2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    nn.Conv2d(4, 5, 1, padding=2),
]


@pytest.mark.parametrize("layout", [ChannelsFirst(), ChannelsLast()], ids=["first", "last"])
@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_patches_in_both_layouts(layout, layer: nn.Conv2d, dtype: torch.dtype) -> None:
    """A convolution is rows @ weights; folding is the transpose of unfolding."""
    geometry, weight = Geometry.of(layer), layer.weight.detach().to(dtype)
    trials, x = 2, drawn(6, 4, 7, 8).to(dtype)
    x = x.contiguous(memory_format=layout.memory)
    rows = layout.unfold(x, geometry, trials)
    expected = F.conv2d(x, weight, None, layer.stride, layer.padding, layer.dilation)  # type: ignore[arg-type]
    packed = layout.pack(weight[None])
    assert expected.shape == geometry.output(x.shape, 5)
    assert torch.allclose(layout.from_signals(rows @ packed, expected.shape), expected, atol=1e-5)
    assert torch.equal(layout.from_signals(layout.signals(expected, trials), expected.shape), expected)
    assert torch.equal(layout.unpack(packed, geometry.kernel)[0], weight)
    other = drawn(*rows.shape, seed=1).to(dtype)
    folded = layout.fold(other, x.shape, geometry)
    assert folded.shape == x.shape
    assert torch.allclose((folded * x).sum(), (other * rows).sum(), rtol=1e-4)
