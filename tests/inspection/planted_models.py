"""Small planters, written from the papers: Robbing the Fed and Curious Abandon Honesty, in front, inside and deeper."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from math import pi, prod
from typing import Any

import torch
from honest_models import ARCHITECTURES
from torch import Tensor, nn

from gradveil.attacks.cah import cah
from gradveil.attacks.rtf import rtf
from gradveil.core.seeds import Seed


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One planted model: which attack, where, how large, and what is done to hide it."""

    attack: str  # rtf or cah
    host: str
    place: str = "front"  # front, as convolution, inside, deeper
    neurons: int = 128
    functional: str = "mean"  # rtf
    scaled: bool = False  # rtf: every row a multiple of its own
    hardtanh: bool = False  # rtf
    factor: float = 0.95  # cah: positive half over negative half
    paired: bool = True  # cah: both halves of the same numbers
    noise: float = 0.0  # added to every row, relative to its length
    jitter: float = 0.0  # of the biases, relative to the gaps
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """One planted by this package's own attacks."""

    attack: str
    host: str
    options: tuple[tuple[str, Any], ...]
    seed: int = 0


class Imprint(nn.Module):
    """Pixels -> planted neurons -> the same number everywhere, added to the picture that goes on."""

    def __init__(self, shape: tuple[int, ...], weight: Tensor, bias: Tensor, activation: nn.Module, conv: bool) -> None:
        super().__init__()
        neurons = len(bias)
        planted = nn.Conv2d(shape[0], neurons, shape[1:]) if conv else nn.Linear(prod(shape), neurons)
        planted.weight.data.copy_(weight.view_as(planted.weight))
        assert planted.bias is not None
        planted.bias.data.copy_(bias)
        self.planted, self.activation, self.conv = planted, activation, conv
        self.back = nn.Linear(neurons, prod(shape))
        nn.init.constant_(self.back.weight, 1e-3 / neurons)
        nn.init.zeros_(self.back.bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(self.planted(x if self.conv else x.flatten(1)).flatten(1))
        return x + self.back(hidden).view_as(x)


def plant(variant: Variant | Shipped) -> tuple[nn.Module, Tensor]:
    """The planted model, and pictures of a client."""
    host = ARCHITECTURES[variant.host](seed=variant.seed)
    if isinstance(variant, Shipped):
        make = rtf if variant.attack == "rtf" else cah
        attack = make(**dict(variant.options))
        return attack.plant(host.model, host.public, Seed(variant.seed)).eval(), host.images
    model = copy.deepcopy(host.model).eval()
    front = variant.place in ("front", "convolution")
    target = None if front else _linear(model, last=variant.place == "deeper")
    inputs = host.images if target is None else _entering(model, target, host.images)
    neurons = variant.neurons if target is None else target.weight.shape[0]
    weight, bias = rows_for(variant, inputs.flatten(1), neurons)
    if target is not None:
        target.weight.data.copy_(weight)
        target.bias.data.copy_(bias)
        return model, host.images
    activation = nn.Hardtanh(0, 1) if variant.hardtanh else nn.ReLU()
    shape = tuple(host.images.shape[1:])
    imprint = Imprint(shape, weight, bias, activation, conv=variant.place == "convolution")
    return nn.Sequential(imprint, model).eval(), host.images


def rows_for(variant: Variant, inputs: Tensor, neurons: int) -> tuple[Tensor, Tensor]:
    rng = Seed(variant.seed).at(variant.attack).rng()
    make = rtf_rows if variant.attack == "rtf" else cah_rows
    weight, bias = make(variant, inputs, neurons, rng)
    lengths = weight.norm(dim=1, keepdim=True)
    noise = torch.randn(weight.shape, generator=rng) / weight.shape[1] ** 0.5
    return weight + variant.noise * lengths * noise, bias


def rtf_rows(variant: Variant, inputs: Tensor, neurons: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """One functional in every row, thresholds at its quantiles over public pictures."""
    row = functional(variant.functional, inputs.shape[1], rng)
    scalar = inputs @ row
    row, scalar = row / scalar.std(), scalar / scalar.std()
    levels = (torch.arange(neurons) + 0.5) / neurons
    bins = scalar.mean() + torch.special.ndtri(levels)  # of a normal distribution, as in the paper
    bins = bins + variant.jitter * torch.randn(neurons, generator=rng) / neurons
    scales = 0.2 + 2 * torch.rand(neurons, 1, generator=rng) if variant.scaled else torch.ones(neurons, 1)
    if variant.hardtanh:
        scales = scales / bins.diff().mean()
    return row * scales, -bins * scales.flatten()


def functional(kind: str, inputs: int, rng: torch.Generator) -> Tensor:
    if kind == "mean":
        return torch.full((inputs,), 1 / inputs)
    if kind == "fourier":
        return torch.cos(pi / inputs * (torch.arange(inputs) + 0.5) * min(32, inputs // 4)) / inputs
    return torch.randn(inputs, generator=rng) / inputs**0.5


def cah_rows(variant: Variant, inputs: Tensor, neurons: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random half of every row negative, the other half the same numbers times a factor, or others like them."""
    width, half = inputs.shape[1], inputs.shape[1] // 2
    order = torch.rand(neurons, width, generator=rng).argsort(1)
    drawn = torch.randn(neurons, half, generator=rng).abs() * 0.5
    other = drawn if variant.paired else torch.randn(neurons, half, generator=rng).abs() * 0.5
    values = torch.cat([-drawn, variant.factor * other, torch.zeros(neurons, width - 2 * half)], 1)
    return torch.zeros(neurons, width).scatter(1, order, values), torch.zeros(neurons)


def _linear(model: nn.Module, last: bool) -> nn.Linear:
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m.weight.shape[0] >= 16]
    return layers[-1 if last else 0]


def _entering(model: nn.Module, layer: nn.Linear, images: Tensor) -> Tensor:
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    with torch.no_grad():
        model(images)
    handle.remove()
    return seen[0].flatten(0, -2)


CONVOLUTIONAL = ("lenet", "convnet8", "residual", "mobilenet", "cnn", "gray-cnn")


def variants(count: int) -> Iterator[Variant]:
    """Half of them rtf, half cah; every second one adds noise or jitter to hide."""
    rtf = product(("mean", "fourier", "random"), (16, 64, 500), (False, True), (0.0, 0.02, 0.1, 0.3), (0.0, 2.0))
    cah = product((64, 300, 128), (0.95, 0.99, 0.9), (True, False), (0.0, 0.02, 0.1, 0.3))
    places = cycle([("front", c) for c in CONVOLUTIONAL] + [("inside", "mlp"), ("inside", "wide-mlp"),
                   ("convolution", "cnn"), ("deeper", "cnn"), ("deeper", "gray-cnn")])  # fmt: skip
    stride = 7  # a step that is prime to the sizes of both tables, so that few of them cover all values
    chosen_rtf, chosen_cah = (list(islice(cycle(rows), stride * count)) for rows in (list(rtf), list(cah)))
    for number in range(count):
        place, host = next(places)
        if number % 2 == 0:
            kind, neurons, scaled, noise, jitter = chosen_rtf[stride * number // 2]
            yield Variant(
                attack="rtf", host=host, place=place, neurons=neurons, functional=kind, scaled=scaled,
                hardtanh=number % 8 == 4, noise=noise, jitter=jitter, seed=number,
            )  # fmt: skip
        else:
            neurons, factor, paired, noise = chosen_cah[stride * (number // 2)]
            yield Variant(
                attack="cah", host=host, place=place, neurons=neurons, factor=factor, paired=paired, noise=noise,
                seed=number,
            )  # fmt: skip


def shipped_variants() -> Iterator[Shipped]:
    """What `gradveil audit --attacker malicious` plants, over its options."""
    connections = ("cancel", "add", "linear", "replace")
    hosts = cycle((*CONVOLUTIONAL, "mlp"))
    rtfs = product((16, 256), ("mean", "random", "fourier:32"), connections, (False, True))
    for seed, (neurons, functional, connection, sparse) in enumerate(rtfs):
        options = {"neurons": neurons, "functional": functional, "connection": connection, "sparse": sparse}
        yield Shipped(attack="rtf", host=next(hosts), options=tuple(options.items()), seed=seed)
    for seed, (neurons, scale, connection) in enumerate(product((32, 64, 256), (0.0, 0.95, 0.99), connections)):
        options = {"neurons": neurons, "scale": scale, "connection": connection}
        yield Shipped(attack="cah", host=next(hosts), options=tuple(options.items()), seed=seed)
