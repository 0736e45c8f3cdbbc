"""Rules for activations: functions of each number alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.engine.sweep.rule import Deltas, Dots, Rule

Slopes = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of input and output: first and second derivative


class Gate(Rule):
    """ReLU and its kin: a slope that is constant on each side of zero."""

    def __init__(self, function: Callable[..., Tensor], leak: float = 0.0) -> None:
        super().__init__(function)
        self.leak = leak

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        out = self.function(*inputs)
        return out, out

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        if self.leak == 0.0:
            return (torch.ops.aten.threshold_backward(delta, cache, 0),)
        return (torch.where(cache > 0, delta, self.leak * delta),)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        return None if dots[0] is None else self.backward(cache, dots[0])[0]

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        return self.backward(cache, mu)


class Window(Gate):
    """ReLU6 and hard tanh: flat below `low` and above `high`."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(lambda x: F.hardtanh(x, low, high))
        self.low, self.high = low, high

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (torch.ops.aten.hardtanh_backward(delta, cache, self.low, self.high),)


class Curve(Rule):
    """A smooth activation whose first two slopes are known as functions of what enters and what leaves."""

    def __init__(self, function: Callable[..., Tensor], slopes: Slopes) -> None:
        super().__init__(function)
        self.slopes = slopes

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        out = self.function(*inputs)
        return out, self.slopes(inputs[0], out)

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (cache[0] * delta,)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        return None if dots[0] is None else cache[0] * dots[0]

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        first, second = cache
        if dots[0] is None or delta is None:
            return (first * mu,)
        return (torch.addcmul(first * mu, second * dots[0], delta),)


def sigmoid_slopes(_x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    first = out * (1 - out)
    return first, first * (1 - 2 * out)


def tanh_slopes(_x: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
    first = 1 - out * out
    return first, -2 * out * first


def gelu_slopes(x: Tensor, _out: Tensor) -> tuple[Tensor, Tensor]:
    density = torch.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return torch.special.ndtr(x) + x * density, density * (2 - x * x)


def silu_slopes(x: Tensor, _out: Tensor) -> tuple[Tensor, Tensor]:
    gate = torch.sigmoid(x)
    bend = gate * (1 - gate)
    return gate + x * bend, bend * (2 + x * (1 - 2 * gate))
