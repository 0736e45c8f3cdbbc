"""The rule for convolutions in groups, depthwise ones above all: trials become groups of one larger convolution."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from gradveil.engine.sweep.convolution import convolve, convolve_back
from gradveil.engine.sweep.patches import Geometry
from gradveil.engine.sweep.rule import Deltas, Dots
from gradveil.engine.sweep.weighted_layers import Moves, Weighted


class GroupedConv(Weighted):
    """What the trials share runs on all pictures at once; what differs, with the trials' channels side by side."""

    def __init__(self, layer: nn.Conv2d, name: str, trials: int) -> None:
        super().__init__(layer, name, trials)
        self.geometry, self.groups, self.many = Geometry.of(layer), layer.groups, trials * layer.groups

    def beside(self, x: Tensor) -> Tensor:
        """[trial * example, channel, ...] -> [example, trial * channel, ...]"""
        return x.unflatten(0, (self.trials, -1)).transpose(0, 1).flatten(1, 2)

    def stack(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.trials, -1)).transpose(0, 1).flatten(0, 1)

    def kernels(self, packed: Tensor) -> Tensor:
        return packed.reshape(-1, *self.weight.shape[1:])

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        return convolve(inputs[0], self.weight, self.geometry, self.bias, self.groups), inputs[0]

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (convolve_back(delta, cache, self.weight, self.geometry, [True, False], self.groups)[0],)

    def gradients(self, cache: Any, delta: Tensor) -> dict[str, Tensor]:
        x, signals = self.beside(cache), self.beside(delta)
        like = self.kernels(self.weight.expand(self.trials, *self.weight.shape))
        weight = convolve_back(signals, x, like, self.geometry, [False, True], self.many)[1]
        found = {self.weight_name: weight.reshape(self.trials, 1, -1)}
        if self.bias is not None:
            found[self.bias_name] = signals.sum((0, 2, 3)).reshape(self.trials, 1, -1)
        return found

    def tangent_with(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None:
        out = None if dots[0] is None else convolve(dots[0], self.weight, self.geometry, groups=self.groups)
        if self.weight_name in moves:
            kernels = self.kernels(moves[self.weight_name].v)
            pushed = self.stack(convolve(self.beside(cache), kernels, self.geometry, groups=self.many))
            out = pushed if out is None else out + pushed
        if self.bias_name in moves:
            shift = moves[self.bias_name].v.reshape(self.trials, -1, 1, 1)
            shift = shift.repeat_interleave(cache.shape[0] // self.trials, 0)
            shape = self.geometry.output(cache.shape, self.weight.shape[0])
            out = shift.expand(shape) if out is None else out + shift
        return out

    def adjoint_of(self, cache: Any, delta: Tensor, mu: Tensor, moves: Moves) -> Deltas:
        back = self.backward(cache, mu)[0]
        if self.weight_name not in moves or back is None:
            return (back,)
        kernels = self.kernels(moves[self.weight_name].v)
        x, signals = self.beside(cache), self.beside(delta)
        return (back + self.stack(convolve_back(signals, x, kernels, self.geometry, [True, False], self.many)[0]),)
