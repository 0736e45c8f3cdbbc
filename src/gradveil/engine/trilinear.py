"""Convolutions whose second derivatives are convolutions of the usual kind.

<g, conv(x, w)> is linear in each of x, w and g, so the three maps below are each other's derivatives, to any order.
torch's own second derivative takes a gradient for a kernel as large as the picture, for which libraries have no fast
way. Under `vmap` trials that share weights are further pictures; those with weights of their own are groups while they
are small, and go one after the other once each fills the machine by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]
LARGE = 10**8  # multiplications of one trial from which on it is a kernel of its own
FEW = 4  # channels of a picture up to which libraries have no fast way back to it


@dataclass(frozen=True)  # and no tuple, which `torch.func` would take apart
class Geometry:
    """Where a convolution looks, and the shapes of what it takes, which its transposes cannot know."""

    picture: torch.Size
    kernel: torch.Size
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def of(self, picture: torch.Size, kernel: torch.Size, groups: int = 1) -> Geometry:
        return replace(self, picture=picture, kernel=kernel, groups=self.groups * groups)

    def options(self) -> tuple[Pair, Pair, Pair, bool, Pair, int]:
        return self.stride, self.padding, self.dilation, False, (0, 0), self.groups


class Map(Function):
    """What two of the three tell of the third. Each has a `vmap`, set below, where all of them are known."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *both, ctx.geometry = inputs
        ctx.save_for_backward(*both)


class Forward(Map):
    """x, w -> y"""

    @staticmethod
    def forward(x: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
        return torch.ops.aten.convolution(x, w, None, *geometry.options())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w = ctx.saved_tensors
        return ByPicture.apply(g, w, ctx.geometry), ByKernel.apply(x, g, ctx.geometry), None


class ByPicture(Map):
    """g, w -> the slope by x"""

    @staticmethod
    def forward(g: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
        if few_channels(geometry):
            return convolve_turned(g, w, geometry)
        like = g.new_empty(1).expand(geometry.picture)
        return torch.ops.aten.convolution_backward(g, like, w, None, *geometry.options(), (True, False, False))[0]

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor, None]:
        g, w = ctx.saved_tensors
        return Forward.apply(x, w, ctx.geometry), ByKernel.apply(x, g, ctx.geometry), None


def few_channels(geometry: Geometry) -> bool:
    """Whether the way back is a convolution forward that libraries are better at."""
    plain = geometry.stride == geometry.dilation == (1, 1) and geometry.groups == 1
    inside = all(p < k for p, k in zip(geometry.padding, geometry.kernel[2:], strict=True))
    return plain and inside and geometry.picture[1] <= FEW


def convolve_turned(g: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    """With stride 1 the slope by the picture is a convolution with the kernel turned over."""
    padding = [k - 1 - p for p, k in zip(geometry.padding, geometry.kernel[2:], strict=True)]
    back = w.flip(-2, -1).transpose(0, 1)
    return torch.ops.aten.convolution(g, back, None, (1, 1), padding, (1, 1), False, (0, 0), 1)


class ByKernel(Map):
    """x, g -> the slope by w"""

    @staticmethod
    def forward(x: Tensor, g: Tensor, geometry: Geometry) -> Tensor:
        like = g.new_empty(1).expand(geometry.kernel)
        return torch.ops.aten.convolution_backward(g, x, like, None, *geometry.options(), (False, True, False))[1]

    @staticmethod
    def backward(ctx: Any, w: Tensor) -> tuple[Tensor, Tensor, None]:
        x, g = ctx.saved_tensors
        return ByPicture.apply(g, w, ctx.geometry), Forward.apply(x, w, ctx.geometry), None


def run_as_batch(
    kind: type[Map], info: Any, in_dims: tuple[int | None, ...], a: Tensor, b: Tensor, geometry: Geometry
) -> tuple[Tensor, int]:
    """One call for all trials where they share weights or are small; else one for each."""
    count, (of_a, of_b) = info.batch_size, in_dims[:2]
    a = a.movedim(of_a, 0) if of_a is not None else a
    b = b.movedim(of_b, 0) if of_b is not None else b
    if kind is not ByKernel and of_b is None:
        return shared_weights(kind, a, b, geometry), 0
    a, b = (x if dim is not None else x.expand(count, *x.shape) for x, dim in ((a, of_a), (b, of_b)))
    if work(geometry, a.shape[1]) > LARGE:
        return torch.stack([kind.apply(*pair, geometry) for pair in zip(a, b, strict=True)]), 0
    return as_groups(kind, a, b, geometry), 0


def work(geometry: Geometry, pictures: int) -> int:
    """Multiplications of one trial, borders aside."""
    return (
        pictures * geometry.kernel.numel() * geometry.picture[-2:].numel() // (geometry.stride[0] * geometry.stride[1])
    )


def shared_weights(kind: type[Map], a: Tensor, w: Tensor, geometry: Geometry) -> Tensor:
    """Trials are further pictures."""
    count, pictures = a.shape[:2]
    all_at_once = geometry.of(torch.Size((count * pictures, *geometry.picture[1:])), geometry.kernel)
    return kind.apply(a.flatten(0, 1), w, all_at_once).unflatten(0, (count, pictures))


def as_groups(kind: type[Map], a: Tensor, b: Tensor, geometry: Geometry) -> Tensor:
    """Trials are further channels that do not see each other."""
    count, (pictures, channels, *size) = len(a), geometry.picture
    picture = torch.Size((pictures, count * channels, *size))
    kernel = torch.Size((count * geometry.kernel[0], *geometry.kernel[1:]))
    sides = [channels_of(a), b.flatten(0, 1) if kind is not ByKernel else channels_of(b)]
    made = kind.apply(*sides, geometry.of(picture, kernel, groups=count))
    if kind is ByKernel:
        return made.unflatten(0, (count, -1))
    return made.unflatten(1, (count, -1)).movedim(1, 0)


def channels_of(x: Tensor) -> Tensor:
    """[trial, picture, channel, ...] to [picture, trial x channel, ...]"""
    return x.movedim(0, 1).flatten(1, 2)


for one in (Forward, ByPicture, ByKernel):
    one.vmap = staticmethod(partial(run_as_batch, one))  # type: ignore[method-assign]


class Trilinear(TorchFunctionMode):
    """Convolutions of pictures go through the three maps, whoever calls them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.conv2d:
            return convolution(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """torch.conv2d"""
    if isinstance(padding, str) or input.dim() != 4:
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    geometry = Geometry(input.shape, weight.shape, pair(stride), pair(padding), pair(dilation), groups)
    out = Forward.apply(input, weight, geometry)
    return out if bias is None else out + bias.view(-1, 1, 1)


def pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))
