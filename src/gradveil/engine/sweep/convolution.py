"""Rules for convolutions: by rows of patches, or one trial at a time where a single convolution fills a CPU core."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.engine.sweep.matrix import Direction, Formed, FormedProducts, Products, ghost_is_cheaper, times
from gradveil.engine.sweep.patches import ChannelsFirst, ChannelsLast, Geometry, Layout
from gradveil.engine.sweep.rule import Deltas, Dots
from gradveil.engine.sweep.weighted_layers import MatrixLayer, Moves, Weighted

FILLS_A_CORE = 2_000_000  # multiplications of one trial above which a convolution of its own beats a batched product


def convolution_rule(layer: nn.Conv2d, name: str, trials: int, shape: torch.Size) -> Weighted:
    """The rule that is fastest here, for pictures stacked as `shape`."""
    geometry = Geometry.of(layer)
    if layer.weight.is_cuda:
        exact = not (torch.backends.cudnn.allow_tf32 and layer.weight.dtype == torch.float32)
        kind = PatchConv if exact and geometry.has_transpose else RowConv
        return kind(layer, name, trials, geometry, ChannelsLast())
    rows = geometry.size(shape[2], shape[3])[0] * geometry.size(shape[2], shape[3])[1] * (shape[0] // trials)
    wide, high = layer.weight[0].numel(), layer.weight.shape[0]
    if ghost_is_cheaper(rows, wide, high):
        return RowConv(layer, name, trials, geometry, ChannelsLast())
    if rows * wide * high >= FILLS_A_CORE:
        return DirectConv(layer, name, trials, geometry)
    return RowConv(layer, name, trials, geometry, ChannelsFirst())


def convolve(x: Tensor, weight: Tensor, g: Geometry, bias: Tensor | None = None, groups: int = 1) -> Tensor:
    return F.conv2d(x, weight, bias, g.stride, g.padding, g.dilation, groups)


def convolve_back(
    delta: Tensor, x: Tensor, weight: Tensor, g: Geometry, wanted: list[bool], groups: int = 1
) -> tuple[Tensor, ...]:
    """Gradients by the input and by the weight of a convolution."""
    pull = torch.ops.aten.convolution_backward
    return pull(delta, x, weight, None, g.stride, g.padding, g.dilation, False, (0, 0), groups, [*wanted, False])


class RowConv(MatrixLayer):
    def __init__(self, layer: nn.Conv2d, name: str, trials: int, geometry: Geometry, layout: Layout) -> None:
        super().__init__(layer, name, trials)
        self.geometry, self.layout, self.by_columns = geometry, layout, layout.by_columns
        self.kernels = layer.weight.contiguous(memory_format=layout.memory)
        self.matrix = layout.pack(layer.weight[None])[0]

    def pack(self, name: str, tensor: Tensor) -> Tensor:
        return self.layout.pack(tensor) if name == self.weight_name else super().pack(name, tensor)

    def unpack(self, name: str, packed: Tensor) -> Tensor:
        return self.layout.unpack(packed, self.geometry.kernel) if name == self.weight_name else packed

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        x = inputs[0].contiguous(memory_format=self.layout.memory)
        rows = self.layout.unfold(x, self.geometry, self.trials)
        return convolve(x, self.kernels, self.geometry, self.bias), (x, rows)

    def rows(self, cache: Any) -> Tensor:
        return cache[1]

    def signals(self, out: Tensor) -> Tensor:
        return self.layout.signals(out, self.trials)

    def from_signals(self, signals: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.layout.from_signals(signals, shape)

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (self.transpose(cache, delta),)

    def tangent_with(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None:
        pushed = self.push(cache, moves, self.geometry.output(cache[0].shape, self.kernels.shape[0]))
        if dots[0] is None:
            return pushed
        through = self.through(dots[0].contiguous(memory_format=self.layout.memory))
        return through if pushed is None else through + pushed

    def through(self, x: Tensor) -> Tensor:
        return convolve(x, self.kernels, self.geometry)

    def adjoint_of(self, cache: Any, delta: Tensor, mu: Tensor, moves: Moves) -> Deltas:
        move: Direction | None = moves.get(self.weight_name)
        if move is None:
            return self.backward(cache, mu)
        if isinstance(move, Formed) and self.by_columns:
            return (self.fold(self.pulled_together(move, delta, mu), cache),)
        back = self.transpose(cache, mu)
        if isinstance(move, Formed) and self.geometry.has_transpose:
            return (back + self.from_signals(torch.bmm(self.delta_rows(cache, delta), self.turn(move.v)), back.shape),)
        return (back + self.fold(move.pull(self.signals(delta)), cache),)

    def transpose(self, cache: Any, out: Tensor) -> Tensor:
        """The shared weights' transpose: from the layer's output back to its input."""
        return convolve_back(out, cache[0], self.kernels, self.geometry, [True, False])[0]

    def delta_rows(self, cache: Any, delta: Tensor) -> Tensor:
        """Patches of what comes back: with the kernels turned, they need no fold."""
        return self.layout.unfold(
            delta.contiguous(memory_format=self.layout.memory), self.geometry.transposed, self.trials
        )

    def turn(self, weights: Tensor) -> Tensor:
        """Packed weights [trial, tap * input, output] for the transpose: [trial, turned tap * output, input]."""
        taps = weights.unflatten(1, (self.geometry.taps, -1)).flip(1)
        return taps.mT.flatten(1, 2)

    def pulled_together(self, move: Formed, delta: Tensor, mu: Tensor) -> Tensor:
        """mu @ weight^T + delta @ v^T as one product and for one fold: both are small here."""
        weights = torch.cat([self.matrix.expand_as(move.v).mT, move.v.mT], 1).mT
        signals = torch.cat([self.signals(mu).mT, self.signals(delta).mT], 1).mT
        return times(signals, weights.mT, self.by_columns)

    def fold(self, rows: Tensor, cache: Any) -> Tensor:
        return self.layout.fold(rows, cache[0].shape, self.geometry)


class PatchConv(RowConv):
    """All products by patches: in plain float32 a GPU's matrix products are twice as fast as its convolutions, which
    also go through a Fourier transform there and lose two digits. Stride 1."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.matrix = self.matrix.contiguous()
        self.turned_matrix = self.turn(self.matrix[None])[0].contiguous()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        x = inputs[0].contiguous(memory_format=self.layout.memory)
        rows = self.layout.unfold(x, self.geometry, self.trials)
        out = torch.matmul(rows, self.matrix)
        out = out if self.bias is None else out + self.bias
        return self.from_signals(out, self.geometry.output(x.shape, self.kernels.shape[0])), (x, rows)

    def through(self, x: Tensor) -> Tensor:
        rows = self.layout.unfold(x, self.geometry, self.trials)
        shape = self.geometry.output(x.shape, self.kernels.shape[0])
        return self.from_signals(torch.matmul(rows, self.matrix), shape)

    def transpose(self, cache: Any, out: Tensor) -> Tensor:
        rows = self.delta_rows(cache, out)
        return self.from_signals(torch.matmul(rows, self.turned_matrix), cache[0].shape)


@dataclass(frozen=True)
class Kernels:
    """A direction given as one stack of kernels per trial, packed as `DirectConv` packs them."""

    v: Tensor

    def each(self) -> Iterator[Tensor]:
        return (v.permute(0, 3, 1, 2) for v in self.v)


@dataclass(frozen=True)
class KernelProducts(FormedProducts):
    def direction(self, a: Tensor, b: Tensor) -> Any:
        a, b = (c.view(-1, 1, 1, 1, 1) for c in (a, b))
        return Kernels(torch.addcmul(b * self.gradient, self.target, a))


class DirectConv(Weighted):
    """One convolution per trial for whatever differs between trials.

    Kernels are packed as [trial, output, y, x, input]: what a convolution of pictures with channels last returns.
    """

    def __init__(self, layer: nn.Conv2d, name: str, trials: int, geometry: Geometry) -> None:
        super().__init__(layer, name, trials)
        self.geometry = geometry
        self.kernels = layer.weight.contiguous(memory_format=torch.channels_last)

    def pack(self, name: str, tensor: Tensor) -> Tensor:
        if name != self.weight_name:
            return super().pack(name, tensor)
        return tensor.permute(0, 1, 3, 4, 2).contiguous()

    def unpack(self, name: str, packed: Tensor) -> Tensor:
        return packed.permute(0, 1, 4, 2, 3) if name == self.weight_name else packed

    def move(self, name: str, packed: Tensor) -> Any:
        return Kernels(packed) if name == self.weight_name else super().move(name, packed)

    def each(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.split(x.shape[0] // self.trials)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Any]:
        x = inputs[0].contiguous(memory_format=torch.channels_last)
        return convolve(x, self.kernels, self.geometry, self.bias), x

    def backward(self, cache: Any, delta: Tensor) -> Deltas:
        return (convolve_back(delta, cache, self.kernels, self.geometry, [True, False])[0],)

    def gradients(self, cache: Any, delta: Tensor) -> dict[str, Tensor]:
        pairs = zip(self.each(delta), self.each(cache), strict=True)
        found = (convolve_back(d, x, self.kernels, self.geometry, [False, True])[1] for d, x in pairs)
        gradients = {self.weight_name: torch.stack([g.permute(0, 2, 3, 1) for g in found])}
        if self.bias is not None:
            gradients[self.bias_name] = delta.unflatten(0, (self.trials, -1)).sum((1, 3, 4))[:, None]
        return gradients

    def products(self, cache: Any, delta: Tensor, targets: Mapping[str, Tensor]) -> dict[str, Products]:
        found = self.gradients(cache, delta)
        kinds = {self.weight_name: KernelProducts, self.bias_name: FormedProducts}
        return {name: kinds[name](found[name], target, False) for name, target in targets.items()}

    def tangent_with(self, cache: Any, dots: Dots, moves: Moves) -> Tensor | None:
        out = None if dots[0] is None else convolve(dots[0], self.kernels, self.geometry)
        if self.weight_name in moves:
            pairs = zip(self.each(cache), moves[self.weight_name].each(), strict=True)
            pushed = torch.cat([convolve(x, v, self.geometry) for x, v in pairs])
            out = pushed if out is None else out.add_(pushed)
        if self.bias_name in moves:
            shift = moves[self.bias_name].v.reshape(self.trials, -1, 1, 1)
            shift = shift.repeat_interleave(cache.shape[0] // self.trials, 0)
            shape = self.geometry.output(cache.shape, self.kernels.shape[0])
            out = shift.expand(shape) if out is None else out.add_(shift)
        return out

    def adjoint_of(self, cache: Any, delta: Tensor, mu: Tensor, moves: Moves) -> Deltas:
        back = convolve_back(mu, cache, self.kernels, self.geometry, [True, False])[0]
        if self.weight_name not in moves:
            return (back,)
        triples = zip(self.each(delta), self.each(cache), moves[self.weight_name].each(), strict=True)
        pulled = torch.cat([convolve_back(d, x, v, self.geometry, [True, False])[0] for d, x, v in triples])
        return (back + pulled,)
