"""The rule for normalization with fixed statistics: weight * (x - center) / spread + bias."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gradveil.attacks.inversion.sweep.layers import Moves, Weighted
from gradveil.attacks.inversion.sweep.rule import Deltas, Dots


class AffineRule(Weighted):
    """Batch normalization in eval mode. `shape` is how a parameter broadcasts against one example: (channels, 1, 1)."""

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

    def summed(self, x: Tensor) -> Tensor:
        """Over the examples of a trial and their positions, [trial, channel]."""
        x = x.unflatten(0, (self.trials, -1))
        return x.sum([1, *range(3, x.dim())])

    def gradients(self, cache: Any, delta: Tensor) -> dict[str, Tensor]:
        found, total = {}, self.summed(delta)
        if self.weight is not None:  # the sum over delta * (x - center) / spread, without writing the bracket
            along = self.summed(delta * cache) - self.center.flatten() * total
            found[self.weight_name] = (along * self.inverse.flatten())[:, None]
        if self.bias is not None:
            found[self.bias_name] = total[:, None]
        return found

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (delta * self.slope,)

    def spread_out(self, each: Tensor, like: Tensor) -> Tensor:
        """A vector of each trial against the stacked examples of all trials."""
        examples = like.shape[0] // self.trials
        each = each.reshape(self.trials, *self.shape)
        return each if examples == 1 else each.repeat_interleave(examples, 0)

    def moved(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None:
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
