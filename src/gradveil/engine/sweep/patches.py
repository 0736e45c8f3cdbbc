"""Pictures to rows of patches and back, in two memory layouts with one meaning.

Rows are always indexed [trial, row, input]; what differs is what lies next to what in memory. Channels first keeps
rows, signals and weights transposed, which small products on a CPU like; channels last is the GPU's own layout and
makes the rows of several examples one block for free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """Where a convolution looks."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair

    @classmethod
    def of(cls, layer: nn.Conv2d) -> Geometry:
        fields = ("kernel_size", "stride", "padding", "dilation")
        return cls(*(tuple(map(int, getattr(layer, f))) for f in fields))  # type: ignore[arg-type]

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def transposed(self) -> Geometry:
        """Where the transpose of a convolution of stride 1 looks, with the kernel turned by half a turn."""
        reach = [d * (k - 1) - p for d, k, p in zip(self.dilation, self.kernel, self.padding, strict=True)]
        return Geometry(self.kernel, (1, 1), (reach[0], reach[1]), self.dilation)

    @property
    def has_transpose(self) -> bool:
        return self.stride == (1, 1) and min(self.transposed.padding) >= 0

    def size(self, height: int, width: int) -> Pair:
        def one(size: int, axis: int) -> int:
            reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            return (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1

        return one(height, 0), one(width, 1)

    def output(self, shape: torch.Size, channels: int) -> tuple[int, int, int, int]:
        return (shape[0], channels, *self.size(shape[2], shape[3]))


class Layout(Protocol):
    by_columns: bool
    memory: torch.memory_format

    def unfold(self, x: Tensor, geometry: Geometry, trials: int) -> Tensor: ...
    def fold(self, rows: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor: ...
    def pack(self, weight: Tensor) -> Tensor: ...
    def unpack(self, packed: Tensor, kernel: Pair) -> Tensor: ...
    def signals(self, out: Tensor, trials: int) -> Tensor: ...
    def from_signals(self, signals: Tensor, shape: tuple[int, ...]) -> Tensor: ...


class ChannelsLast:
    by_columns = False
    memory = torch.channels_last

    def unfold(self, x: Tensor, geometry: Geometry, trials: int) -> Tensor:
        """[trial, row, kernel_y * kernel_x * channel]"""
        count, channels = x.shape[:2]
        height, width = geometry.size(x.shape[2], x.shape[3])
        last = x.permute(0, 2, 3, 1)
        (pad_y, pad_x), (step_y, step_x), (wide_y, wide_x) = geometry.padding, geometry.stride, geometry.dilation
        if geometry.kernel == (1, 1) and geometry.padding == (0, 0):
            return last[:, ::step_y, ::step_x].reshape(trials, -1, channels)
        padded = F.pad(last, (0, 0, pad_x, pad_x, pad_y, pad_y)).contiguous()
        wide = channels % 4 == 0 and x.dtype == torch.float32
        if wide:  # four numbers as one: a strided copy costs by the element, not by the byte
            padded = padded.view(torch.complex128)
        n, y, z, c = padded.stride()
        sizes = (count, height, width, *geometry.kernel, padded.shape[-1])
        view = padded.as_strided(sizes, (n, y * step_y, z * step_x, y * wide_y, z * wide_x, c)).contiguous()
        return (view.view(torch.float32) if wide else view).view(trials, -1, channels * geometry.taps)

    def fold(self, rows: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
        """The transpose of `unfold`: every patch added where it came from."""
        count, channels, full_y, full_x = shape
        height, width = geometry.size(full_y, full_x)
        patches = rows.reshape(count, height, width, *geometry.kernel, channels)
        (pad_y, pad_x), (step_y, step_x), (wide_y, wide_x) = geometry.padding, geometry.stride, geometry.dilation
        out = rows.new_zeros(count, full_y + 2 * pad_y, full_x + 2 * pad_x, channels)
        for i in range(geometry.kernel[0]):
            for j in range(geometry.kernel[1]):
                top, left = i * wide_y, j * wide_x
                bottom, right = top + step_y * (height - 1) + 1, left + step_x * (width - 1) + 1
                out[:, top:bottom:step_y, left:right:step_x] += patches[:, :, :, i, j]
        return out[:, pad_y : pad_y + full_y, pad_x : pad_x + full_x].permute(0, 3, 1, 2)

    def pack(self, weight: Tensor) -> Tensor:
        return weight.permute(0, 3, 4, 2, 1).flatten(1, 3).contiguous()

    def unpack(self, packed: Tensor, kernel: Pair) -> Tensor:
        return packed.unflatten(1, (*kernel, -1)).permute(0, 4, 3, 1, 2)

    def signals(self, out: Tensor, trials: int) -> Tensor:
        return out.permute(0, 2, 3, 1).reshape(trials, -1, out.shape[1])

    def from_signals(self, signals: Tensor, shape: tuple[int, ...]) -> Tensor:
        count, channels, height, width = shape
        return signals.reshape(count, height, width, channels).permute(0, 3, 1, 2)


class ChannelsFirst:
    by_columns = True
    memory = torch.contiguous_format

    def unfold(self, x: Tensor, geometry: Geometry, trials: int) -> Tensor:
        """[trial, row, channel * kernel_y * kernel_x], a transposed view."""
        channels = x.shape[1]
        height, width = geometry.size(x.shape[2], x.shape[3])
        (pad_y, pad_x), (step_y, step_x), (wide_y, wide_x) = geometry.padding, geometry.stride, geometry.dilation
        padded = F.pad(x, (pad_x, pad_x, pad_y, pad_y)).contiguous()
        n, c, y, z = padded.stride()
        examples = x.shape[0] // trials
        sizes = (trials, channels, *geometry.kernel, examples, height, width)
        strides = (n * examples, c, y * wide_y, z * wide_x, n, y * step_y, z * step_x)
        columns = padded.as_strided(sizes, strides)
        return columns.reshape(trials, channels * geometry.taps, -1).mT

    def fold(self, rows: Tensor, shape: torch.Size, geometry: Geometry) -> Tensor:
        trials, count = rows.shape[0], shape[0]
        columns = rows.mT.unflatten(2, (count // trials, -1)).transpose(1, 2).flatten(0, 1)
        g = geometry
        return F.fold(columns, tuple(shape[2:]), g.kernel, g.dilation, g.padding, g.stride)

    def pack(self, weight: Tensor) -> Tensor:
        return weight.flatten(2).mT

    def unpack(self, packed: Tensor, kernel: Pair) -> Tensor:
        return packed.mT.unflatten(2, (-1, *kernel))

    def signals(self, out: Tensor, trials: int) -> Tensor:
        each = out.flatten(2).unflatten(0, (trials, -1))  # [trial, example, channel, position]
        return each.transpose(1, 2).flatten(2).mT

    def from_signals(self, signals: Tensor, shape: tuple[int, ...]) -> Tensor:
        trials, channels = signals.shape[0], shape[1]
        each = signals.mT.reshape(trials, channels, shape[0] // trials, shape[2] * shape[3])
        return each.transpose(1, 2).reshape(shape)
