"""The way from a picture to the input of a layer, found by probing, and back.

What stands before the layer may be anything that is affine in the picture: a normalization under any name, a swap of
channels, padding, patches, a convolution that overlaps or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from gradveil.core.errors import NotApplicableError
from gradveil.core.seeds import Seed, normal, uniform

ROUNDING = 1e-4  # of the length: what a sum in float32 may be off
STEPS = 200  # of conjugate gradients, which end after as many as there are different scales


class Reached(Exception):
    """The layer has been reached, and what comes after it does not matter."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def raise_input(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    raise Reached(inputs[0])


@dataclass(frozen=True, eq=False)
class LayerInput:
    """What a layer multiplies by its weights, [picture, row, column]: one row for each place that the weights visit."""

    model: nn.Module  # in client mode
    layer: str
    shape: tuple[int, int, int]

    def __call__(self, pictures: Tensor) -> Tensor:
        layer = self.model.get_submodule(self.layer)
        hook = layer.register_forward_pre_hook(raise_input)
        try:
            self.model(pictures)
        except Reached as reached:
            return rows_of(layer, reached.value)
        finally:
            hook.remove()
        raise RuntimeError(f"layer {self.layer} has not been called")

    @torch.no_grad()
    def is_affine(self) -> bool:
        """Whether it is an affine function of the picture, each picture by itself; one that sees no picture is none."""
        like = next(self.model.parameters())
        one, other = uniform((2, *self.shape), Seed().at("affine").rng(), like)
        of_one, of_other = self(torch.stack([one, other]))
        (between,) = self((0.25 * one + 0.75 * other).unsqueeze(0))
        off = (between - 0.25 * of_one - 0.75 * of_other).norm()
        return bool(off < ROUNDING * between.norm()) and not torch.allclose(of_one, of_other)

    def invert(self, rows: Tensor) -> Tensor:
        """The pictures whose inputs come nearest to these, by conjugate gradients, each until it is there."""
        pictures = rows.new_full((len(rows), *self.shape), 0.5)
        apply, pull = self.linear_part(pictures)
        tiny = torch.finfo(rows.dtype).tiny
        with torch.no_grad():
            left = pull(rows - self(pictures))
        direction, size = left, squares(left)
        enough = size * (8 * torch.finfo(rows.dtype).eps) ** 2
        for _ in range(STEPS):
            moving = size > enough  # never where the rows are no numbers
            if not moving.any():
                break
            moved = apply(direction)
            step = spread((size / squares(moved).clamp_min(tiny)).where(moving, torch.zeros_like(size)))
            pictures, left = pictures + step * direction, left - step * pull(moved)
            before, size = size, squares(left).where(moving, size)
            direction = left + spread(size / before.clamp_min(tiny)) * direction
        return pictures

    def invert_whole(self, values: Tensor) -> Tensor:
        """The same for the whole of what goes into the layer, as the layer sees it."""
        return self.invert(rows_of(self.model.get_submodule(self.layer), values))

    def linear_part(self, at: Tensor) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        """Pictures to rows without the constant, and its transpose."""
        with torch.enable_grad():
            leaf = at.detach().requires_grad_()
            out = self(leaf)
        with torch.no_grad():
            constant = self(torch.zeros_like(at))

        @torch.no_grad()
        def apply(direction: Tensor) -> Tensor:
            return self(direction) - constant

        def pull(rows: Tensor) -> Tensor:
            return torch.autograd.grad(out, leaf, rows, retain_graph=True)[0]

        return apply, pull


def rows_of(layer: nn.Module, value: Tensor) -> Tensor:
    """A linear layer's input as it is, a convolution's as the patches that its kernel sees."""
    if isinstance(layer, nn.Conv2d):
        assert not isinstance(layer.padding, str)
        return F.unfold(value, layer.kernel_size, layer.dilation, layer.padding, layer.stride).transpose(1, 2)
    return value.reshape(len(value), -1, value.shape[-1])


def squares(x: Tensor) -> Tensor:
    return x.flatten(1).square().sum(1)


def spread(x: Tensor) -> Tensor:
    return x.view(-1, 1, 1, 1)


def random_value(out: Tensor, rng: Generator) -> Tensor:
    """A number that depends on every output alike: its slopes are those of a loss that nobody knows."""
    if not isinstance(out, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NotApplicableError("the model's output is no single tensor, choose an attack that searches")
    return (out * normal(tuple(out.shape), rng, out)).sum()


def called_layers(model: nn.Module, pictures: Tensor) -> dict[str, Tensor]:
    """Convolutions and linear layers that are called once, in the order of their calls, with what goes out of them."""
    calls: dict[str, list[Tensor]] = {}

    def record(name: str) -> Callable[..., None]:
        return lambda _layer, _inputs, out: calls.setdefault(name, []).append(out)

    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(record(name)) for name, layer in layers]
    try:
        calls[""] = [model(pictures)]
    finally:
        for hook in hooks:
            hook.remove()
    return {name: outs[0] for name, outs in calls.items() if len(outs) == 1}


def is_plain(layer: nn.Module) -> bool:
    """Whether its output is its weights times its input, place by place."""
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, nn.Linear)
