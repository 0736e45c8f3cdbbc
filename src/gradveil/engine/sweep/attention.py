"""Rules for what attention is made of: products of two values, and shares that sum to one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradveil.engine.sweep.rule import Deltas, Dots, Rule


class Product(Rule):
    """left @ right, both stacks of matrices that depend on the picture."""

    def __init__(self) -> None:
        super().__init__(torch.matmul)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        return torch.matmul(*inputs), inputs

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        left, right = cache
        return torch.matmul(delta, right.mT), torch.matmul(left.mT, delta)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        (left, right), (left_dot, right_dot) = cache, dots
        if left_dot is None or right_dot is None:
            moving = None if right_dot is None else torch.matmul(left, right_dot)
            return moving if left_dot is None else torch.matmul(left_dot, right)
        return torch.matmul(left_dot, right) + torch.matmul(left, right_dot)

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        by_left, by_right = self.backward(cache, mu)
        assert by_left is not None
        assert by_right is not None
        left_dot, right_dot = dots if delta is not None else (None, None)
        if right_dot is not None and delta is not None:
            by_left = by_left + torch.matmul(delta, right_dot.mT)
        if left_dot is not None and delta is not None:
            by_right = by_right + torch.matmul(left_dot.mT, delta)
        return by_left, by_right


class Shares(Rule):
    """Softmax along an axis. Its derivative at shares p is symmetric: v -> p * (v - <p, v>)."""

    def __init__(self, axis: int) -> None:
        super().__init__(lambda x: torch.softmax(x, axis))
        self.axis = axis

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        out = self.function(*inputs)
        return out, out

    def along(self, shares: Tensor, v: Tensor) -> Tensor:
        return (shares * v).sum(self.axis, keepdim=True)

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (cache * (delta - self.along(cache, delta)),)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        return None if dots[0] is None else self.backward(cache, dots[0])[0]

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        """The tangent is made of shares too: its slope by them goes the same way back."""
        if dots[0] is None or delta is None:
            return self.backward(cache, mu)
        by_shares = delta * (dots[0] - self.along(cache, dots[0])) - self.along(cache, delta) * dots[0]
        return self.backward(cache, mu + by_shares)
