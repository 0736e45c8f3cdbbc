"""A rule: how one operation takes part in the four sweeps.

With l(x, w) a trial's loss and v a direction in weight space, the match needs  d/dx <dl/dw, v>.  That is the
derivative of phi = dl(x, w + e v)/de, and phi is made of linear operations on two streams that walk together:

    forward    h        activations
    backward   delta    dl/dh, and with it the weight gradients
    tangent    dot      dh/de: what the activations would do if the weights moved along v
    adjoint    mu       dphi/dh; dphi/d(dot) is delta again, since phi is linear in dot

Pictures of all trials are stacked on the first axis (trial-major); weights along v differ from trial to trial.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Dots = tuple[Tensor | None, ...]  # None: no weight has moved this value
Deltas = tuple[Tensor | None, ...]


class Rule:
    """An operation without weights, by automatic differentiation: right for anything smooth, fast for nothing.

    Reverse mode only: torch's forward mode keeps its level in a global, which threads would share, and some of its
    formulas are wrong when they are differentiated again.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        """The output, and what the other sweeps need to remember."""
        return self.function(*inputs), inputs

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        with torch.enable_grad():
            leaves, out = self.redone(cache)
        return torch.autograd.grad(out, leaves, delta, materialize_grads=True)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        if all(dot is None for dot in dots):
            return None
        with torch.enable_grad():
            leaves, out = self.redone(cache)
            probe = torch.zeros_like(out, requires_grad=True)  # the pullback is linear in it: its slope is the tangent
            pulled = torch.autograd.grad(out, leaves, probe, create_graph=True, materialize_grads=True)
            along = sum(
                ((p * dot).sum() for p, dot in zip(pulled, dots, strict=True) if dot is not None), out.new_zeros(())
            )
        return torch.autograd.grad(along, probe, materialize_grads=True)[0]

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        if all(dot is None for dot in dots) or delta is None:
            return self.backward(cache, mu)
        with torch.enable_grad():
            leaves, out = self.redone(cache)
            pulled = torch.autograd.grad(out, leaves, delta, create_graph=True, materialize_grads=True)
            phi = (out * mu).sum()
            phi = phi + sum((p * dot).sum() for p, dot in zip(pulled, dots, strict=True) if dot is not None)
        return torch.autograd.grad(phi, leaves, materialize_grads=True)

    def redone(self, cache: Any) -> tuple[tuple[Tensor, ...], Tensor]:
        leaves = tuple(x.detach().requires_grad_() for x in cache)
        return leaves, self.function(*leaves)


class LinearMap(Rule):
    """An operation that is linear in its one input: it moves as the input does, and has no second-order term."""

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        return None if dots[0] is None else self.function(dots[0])

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        return self.backward(cache, mu)


class Reshape(Rule):
    """Flatten, view, reshape: the same numbers in another shape."""

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        return self.function(x), x.shape

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (delta.reshape(cache),)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        return None if dots[0] is None else self.function(dots[0])

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        return (mu.reshape(cache),)


class Add(Rule):
    """Residual sums of two values of the same shape."""

    def __init__(self) -> None:
        super().__init__(torch.add)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        return inputs[0] + inputs[1], None

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return delta, delta

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        left, right = dots
        if left is None or right is None:
            return right if left is None else left
        return left + right

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        return mu, mu


class Joined(Rule):
    """Several values side by side along an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__(torch.cat)
        self.axis = axis

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        return torch.cat(inputs, self.axis), inputs

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return delta.split([x.shape[self.axis] for x in cache], self.axis)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        if all(dot is None for dot in dots):
            return None
        pairs = zip(cache, dots, strict=True)
        return torch.cat([torch.zeros_like(x) if dot is None else dot for x, dot in pairs], self.axis)

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        return self.backward(cache, mu)


class MaxPool(Rule):
    """Max pooling: which pixel wins does not change for a small move."""

    def __init__(self, function: Callable[..., Tensor], window: tuple[Any, ...]) -> None:
        super().__init__(function)
        self.window = window  # kernel, stride, padding, dilation, ceil_mode

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        out, winners = torch.ops.aten.max_pool2d_with_indices(inputs[0], *self.window)
        return out, (inputs[0], winners)

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        x, winners = cache
        pull = torch.ops.aten.max_pool2d_with_indices_backward
        return (pull(delta.contiguous(), x, *self.window, winners),)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        if dots[0] is None:
            return None
        _, winners = cache
        return dots[0].flatten(2).gather(2, winners.flatten(2)).view_as(winners)

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        return self.backward(cache, mu)
