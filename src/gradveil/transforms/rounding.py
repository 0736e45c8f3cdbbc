"""Between pictures in [0, 1] and PIL's whole levels 0 to 255. What is rounded passes gradients straight through."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Pictures = Float[Tensor, "image channel height width"]  # in [0, 1]
Levels = Float[Tensor, "image channel height width"]  # whole numbers 0 to 255, in float32
Amounts = Float[Tensor, " image"]

WHITE = 255.0


def levels(images: Pictures) -> Levels:
    """The nearest of 256 levels. float32 holds them, and all that PIL makes of them in whole numbers, exactly."""
    return _Levels.apply(images)  # pyright: ignore[reportReturnType]


def pictures(found: Levels, like: Pictures) -> Pictures:
    """Back to [0, 1] in the precision that came in, to the last bit what loading a file gives. Works in place."""
    # a tensor: torch multiplies by 1/255 on a GPU when it is told to divide by a plain number
    white = torch.full((), WHITE, dtype=like.dtype, device=like.device)
    return found.to(like.dtype).div_(white)


def truncate(values: Tensor) -> Tensor:
    """Clipped to 0 to 255 and cut off, as C does when it casts. The gradient is that of the clipping alone."""
    return _Truncated.apply(values)  # pyright: ignore[reportReturnType]


def round_down(values: Tensor) -> Tensor:
    """The next lower whole number, with the gradient of the identity."""
    return _Floored.apply(values)  # pyright: ignore[reportReturnType]


def in_place_of(source: Tensor, value: Tensor) -> Tensor:
    """The value, with the gradient of the source."""
    return value.detach() + (source - source.detach())


def per_image(amount: Amounts, dtype: torch.dtype = torch.float32) -> Float[Tensor, "image 1 1 1"]:
    return amount.to(dtype)[:, None, None, None]


class _Levels(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor) -> Tensor:
        return (images * WHITE).round_().float()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.to(ctx.dtype) * WHITE

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent.float() * WHITE


class _Floored(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.floor()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent.clone()


class _Truncated(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        return values.clamp(0, WHITE).floor_().float()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        return grad.to(values.dtype) * ((values >= 0) & (values <= WHITE))

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        return (tangent * ((values >= 0) & (values <= WHITE))).float()
