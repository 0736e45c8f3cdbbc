"""Rules for normalization: by fixed statistics, and by those of each example itself."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.engine.sweep.rule import Deltas, Dots, Rule
from gradveil.engine.sweep.weighted_layers import Moves, Weighted


class AffineRule(Weighted):
    """weight * (x - center) / spread + bias: batch normalization in eval mode, and the weights of other kinds.

    `shape` is how a parameter broadcasts against one example: (channels, 1, 1). Dimensions before it are summed over.
    """

    def __init__(
        self, layer: nn.Module, name: str, trials: int, shape: tuple[int, ...], center: Tensor, spread: Tensor
    ) -> None:
        super().__init__(layer, name, trials)
        self.shape = shape
        self.center, self.inverse = center.reshape(shape), spread.reshape(shape).reciprocal()
        self.slope = self.inverse if self.weight is None else self.inverse * self.weight.reshape(shape)
        self.shift = -self.center * self.slope + (0 if self.bias is None else self.bias.reshape(shape))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        return torch.addcmul(self.shift, inputs[0], self.slope), inputs[0]

    def sum_over_places(self, x: Tensor) -> Tensor:
        """Over the examples of a trial and their positions, [trial, number of the parameter]."""
        x = x.unflatten(0, (self.trials, -1))
        axes = [x.dim() - len(self.shape) + axis for axis, size in enumerate(self.shape) if size > 1]
        gone = [axis for axis in range(1, x.dim()) if axis not in axes]
        return x.sum(gone).reshape(self.trials, -1)

    def gradients(self, cache: Any, delta: Tensor) -> dict[str, Tensor]:
        found, total = {}, self.sum_over_places(delta)
        if self.weight is not None:  # the sum over delta * (x - center) / spread, without writing the bracket
            along = self.sum_over_places(delta * cache) - self.center.flatten() * total
            found[self.weight_name] = (along * self.inverse.flatten())[:, None]
        if self.bias is not None:
            found[self.bias_name] = total[:, None]
        return found

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (delta * self.slope,)

    def spread_out(self, each: Tensor, like: Tensor) -> Tensor:
        """A vector of each trial against the stacked examples of all trials."""
        examples = like.shape[0] // self.trials
        between = (1,) * (like.dim() - 1 - len(self.shape))
        each = each.reshape(self.trials, *between, *self.shape)
        return each if examples == 1 else each.repeat_interleave(examples, 0)

    def tangent_with(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None:
        scale, shift = moves.get(self.weight_name), moves.get(self.bias_name)
        out = None if shift is None else self.spread_out(shift.v, cache)
        if scale is not None:
            turn = self.spread_out(scale.v, cache) * self.inverse
            offset = -self.center * turn if out is None else torch.addcmul(out, self.center, turn, value=-1)
            out = torch.addcmul(offset, cache, turn)
        if dots[0] is None:
            return None if out is None else out.expand_as(cache)
        return dots[0] * self.slope if out is None else torch.addcmul(out, dots[0], self.slope)

    def adjoint_of(self, cache: Any, delta: Tensor, mu: Tensor, moves: Moves) -> Deltas:
        out = mu * self.slope
        if self.weight_name not in moves:
            return (out,)
        turn = self.spread_out(moves[self.weight_name].v, cache) * self.inverse
        return (torch.addcmul(out, delta, turn),)


class Standardized(Rule):
    """Mean 0 and variance 1 over the last `axes` dimensions of each example.

    With n what leaves and r one over the spread, the derivative is symmetric: v -> r (v - mean(v) - n mean(n v)).
    """

    def __init__(self, axes: int, eps: float) -> None:
        super().__init__(lambda x: F.layer_norm(x, x.shape[-axes:], eps=eps))
        self.over, self.eps = tuple(range(-axes, 0)), eps

    def mean(self, x: Tensor) -> Tensor:
        return x.mean(self.over, keepdim=True)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        variance, center = torch.var_mean(inputs[0], self.over, correction=0, keepdim=True)
        inverse = torch.rsqrt(variance + self.eps)
        out = (inputs[0] - center) * inverse
        return out, (out, inverse)

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        out, inverse = cache
        return (inverse * torch.addcmul(delta - self.mean(delta), out, self.mean(out * delta), value=-1),)

    def tangent(self, cache: Any, dots: Dots) -> Tensor | None:
        return None if dots[0] is None else self.backward(cache, dots[0])[0]

    def adjoint(self, cache: Any, dots: Dots, delta: Tensor | None, mu: Tensor) -> Deltas:
        """<delta, derivative of dot> moves with the spread, and with n in both of its means."""
        if dots[0] is None or delta is None:
            return self.backward(cache, mu)
        out, inverse = cache
        dot_moved = self.backward(cache, dots[0])[0]
        assert dot_moved is not None
        along_delta, along_dot = self.mean(out * delta), self.mean(out * dots[0])
        (pulled,) = self.backward(cache, mu - inverse * along_dot * delta)
        assert pulled is not None
        return (pulled - inverse * (self.mean(delta * dot_moved) * out + along_delta * dot_moved),)
