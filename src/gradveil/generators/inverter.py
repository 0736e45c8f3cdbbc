"""A network from features of an update to its pictures (Learning to Invert, Wu et al., UAI 2023).

Theirs is a perceptron of three layers of 3,000 units. Here it is a residual perceptron with normalization, and with
`decoder` 2 convolutions that refine what it draws. Features are standardized by what they are over public pictures.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.generators.autoencoder import Residual
from gradveil.generators.stored import load_network

KIND = "inverter"
TRAIN = "make one by gradveil train-inverter"
AT_ONCE = 256
PERCEPTRON, CONVOLUTIONS = 1, 2
DECODERS = {"perceptron": PERCEPTRON, "convolutions": CONVOLUTIONS}
FARTHEST = 10.0  # standard deviations of a feature that count
COARSER = 4  # the refinement begins with maps that are so many times smaller
WIDTH = 64  # channels of the refinement


class Dropout(nn.Module):
    """With a random stream of its own, so that an interrupted training goes on as it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.share, self.rng = 0.0, Generator()

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        keep = torch.empty_like(x, dtype=torch.float32).bernoulli_(1 - self.share, generator=self.rng)
        return x * keep.to(x.dtype) / (1 - self.share)


class Unit(nn.Module):
    """Two linear layers beside the identity."""

    def __init__(self, width: int, drop: Dropout) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), drop
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.outer.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(self.drop(F.gelu(self.inner(self.norm(x)))))


class Refinement(nn.Module):
    """Convolutions from a code and a coarse picture to what the picture lacks."""

    def __init__(self, hidden: int, channels: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size
        self.small = tuple(-(-side // COARSER) for side in size)
        self.maps = nn.Linear(hidden, WIDTH * self.small[0] * self.small[1])
        self.first, self.second = Residual(WIDTH), Residual(WIDTH)
        self.enlarge = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.join = nn.Conv2d(WIDTH + channels, WIDTH, 3, padding=1)
        self.last, self.out = Residual(WIDTH), nn.Conv2d(WIDTH, channels, 3, padding=1)
        nn.init.zeros_(self.out.weight)

    def forward(self, code: Tensor, picture: Tensor) -> Tensor:
        middle = [-(-side * 2 // COARSER) for side in self.size]
        x = self.first(self.maps(code).view(-1, WIDTH, *self.small))
        x = self.second(self.enlarge(F.interpolate(x, middle, mode="nearest")))
        x = torch.cat([F.interpolate(x, self.size, mode="nearest"), picture], 1)
        return self.out(F.silu(self.last(self.join(x))))


class Inverter(nn.Module):
    """Called with features [client, number] and labels [client, example, class]: pictures, not yet cut to [0, 1]."""

    mean: Tensor
    std: Tensor
    blank: Tensor
    trust: Tensor
    file = ""

    def __init__(
        self,
        *,
        features: int,
        sketch: int,
        classes: int,
        channels: int,
        height: int,
        width: int,
        examples: int = 1,
        hidden: int = 1024,
        depth: int = 2,
        decoder: int = PERCEPTRON,
    ) -> None:
        super().__init__()
        if decoder not in DECODERS.values():
            raise ConfigError(f"inverter: decoder must be {PERCEPTRON} or {CONVOLUTIONS}, got {decoder}")
        self.sketch, self.examples, self.shape = sketch, examples, (channels, height, width)
        self.drop = Dropout()
        self.enter = nn.Linear(features + examples * classes, hidden)
        self.units = nn.Sequential(*(Unit(hidden, self.drop) for _ in range(depth)))
        self.norm = nn.LayerNorm(hidden)
        self.draw = nn.Linear(hidden, examples * channels * height * width)
        nn.init.zeros_(self.draw.weight)  # the first drawing is the blank
        nn.init.zeros_(self.draw.bias)
        refines = decoder == CONVOLUTIONS
        self.refine = Refinement(hidden, examples * channels, (height, width)) if refines else None
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))
        self.register_buffer("blank", torch.zeros(channels, height, width))
        self.register_buffer("trust", torch.ones(()))

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        known = ((features.to(self.mean) - self.mean) / self.std).clamp(-FARTHEST, FARTHEST)
        x = self.enter(self.drop(torch.cat([known, labels.flatten(1).to(self.mean)], 1)))
        code = self.norm(self.units(x))
        channels, height, width = self.shape
        picture = self.draw(code).view(-1, self.examples * channels, height, width)
        if self.refine is not None:
            picture = picture + self.refine(code, picture)
        return self.blank + self.trust * picture.unflatten(1, (self.examples, channels))

    def standardize(self, features: Tensor, blank: Tensor) -> None:
        """By what features [client, number] are, and by the mean picture."""
        std, mean = zip(
            *(torch.std_mean(part.float(), 0, correction=0) for part in features.split(1024, 1)), strict=True
        )
        self.mean.copy_(torch.cat(mean))
        self.std.copy_(torch.cat(std).clamp_min(1e-3))
        self.blank.copy_(blank)


@torch.no_grad()
def hold_back(network: Inverter, features: Tensor, labels: Tensor, truth: Tensor) -> None:
    """Drawings leave the mean picture as far as those of pictures that were not learned from should have (0 to 1).

    What was learned by heart, as under noise, then costs little. Pictures are in [0, 1], [client, example, ...].
    """
    drawn = draw_pictures(network, features, labels).double() - network.blank
    wanted = truth.double() - network.blank
    best = (drawn * wanted).sum() / drawn.square().sum().clamp_min(1e-12)
    network.trust.copy_(best.clamp(0, 1))


def load_inverter(path: str | Path) -> Inverter:
    """From the file that `gradveil train-inverter` wrote: frozen, on the CPU, in float32."""
    return load_network(path, KIND, Inverter, TRAIN)


@torch.no_grad()
def draw_pictures(network: Inverter, features: Tensor, labels: Tensor) -> Tensor:
    """Pictures in [0, 1], [client, example, channel, height, width]."""
    pairs = zip(features.split(AT_ONCE), labels.split(AT_ONCE), strict=True)
    return torch.cat([network(*pair) for pair in pairs]).clamp(0, 1)
