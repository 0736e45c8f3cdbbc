"""PRECODE (Scheliga et al., 2022): a variational bottleneck in front of the last linear layer.

An encoder gives mean and deviation of `size` numbers, which are drawn and decoded again; `beta` times their divergence
from the standard normal (in bits) is added to the loss. K = 256, beta = 1e-3, the softplus and the bits are those of
the authors' code. The model itself draws nothing: its noise is a buffer that is zero, the path of the mean, unless the
client passes numbers of its own random stream. A model that was trained with its bottleneck keeps it; beside weights
that were trained without one, its weights are those of `seed`.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from numpy.random import default_rng
from torch import Generator, Tensor, nn
from torch.func import functional_call

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed, normal
from gradveil.core.types import Batch, GradientFn, Params, Update
from gradveil.defenses._layers import linear_layer, output_of
from gradveil.models.start import weights_from

PAPER = Paper(
    "PRECODE - A Generic Model Extension to Prevent Deep Gradient Leakage", "Scheliga et al.", 2022, "arXiv:2108.04725"
)
BOTTLENECK, HEAD = "bottleneck", "head"
MOST_DRAWS = 1024


class VariationalBottleneck(nn.Module):
    """Encoder, draw, decoder. `noise` is [1 or example, size]; zero gives the mean."""

    noise: Tensor

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.encoder = nn.Linear(features, 2 * size)
        self.decoder = nn.Linear(size, features)
        self.register_buffer("noise", torch.zeros(1, size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        mean, raw = self.encoder(x).chunk(2, -1)
        return self.decoder(mean + F.softplus(raw) * self.noise)


@dataclass(frozen=True, kw_only=True)
class Precode(Defense):
    """Inserts a variational bottleneck of `size` numbers before the last linear layer; `beta` weighs its loss.

    The last linear layer must be given one row for each picture. `draws`: of the attacker who knows, who takes the mean
    gradient over so many draws of its own; 0: the gradient at their mean.
    """

    stronger: ClassVar[tuple[str, ...]] = ()
    shows_draws: ClassVar[bool] = True  # the gradient of the decoder holds the numbers that were drawn

    size: int = 256
    beta: float = 1e-3
    seed: int = 0
    draws: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"precode: size = {self.size} is no number of features, take 1 or more")
        if not (self.beta >= 0 and math.isfinite(self.beta)):
            raise ConfigError(f"precode: beta = {self.beta} is not a weight, take a number >= 0")
        if not 0 <= self.draws <= MOST_DRAWS:
            raise ConfigError(f"precode: draws = {self.draws} is out of range, take 0 (the mean) to {MOST_DRAWS}")

    def check(self, model: nn.Module) -> None:
        linear_layer("precode", model)
        for layer in model.modules():
            if isinstance(layer, VariationalBottleneck) and layer.size != self.size:
                message = f"size = {self.size}, the bottleneck of this model has {layer.size}"
                raise ConfigError(f"precode: {message}, take size = {layer.size}")

    @classmethod
    def find_in(cls, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any] | None:
        """The size of the bottleneck among the weights."""
        inner = [shape for name, shape in shapes.items() if name.endswith(f".{BOTTLENECK}.decoder.weight")]
        return {"size": inner[0][1]} if inner and len(inner[0]) == 2 and all(inner[0]) else None

    def model(self, model: nn.Module) -> nn.Module:
        """A copy; the last linear layer, by name `fc`, becomes `fc.bottleneck` and `fc.head`, if it is not so yet."""
        model, name = copy.deepcopy(model), linear_layer("precode", model)
        if any(isinstance(layer, VariationalBottleneck) for layer in model.modules()):
            return model
        last = model.get_submodule(name)
        assert isinstance(last, nn.Linear)
        with weights_from(self.seed):
            bottleneck = VariationalBottleneck(last.in_features, self.size).to(last.weight)
        model.set_submodule(name, nn.Sequential(OrderedDict({BOTTLENECK: bottleneck, HEAD: last})))
        return model

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        place = bottleneck_of(model)

        def compute_with_noise(params: Params, batch: Batch) -> Update:
            like = next(iter(params.values()))
            noise = normal((batch.images.shape[0], self.size), rng, like)
            # passed as a parameter, the noise gets a gradient too, which nobody sends
            gradient = compute({**params, f"{place}.noise": noise}, batch)
            return _add_weighted(
                {name: gradient[name] for name in params}, divergence(model, params, batch, place), self.beta
            )

        return compute_with_noise

    def surrogate(self, seen: Update) -> Expected:
        return Expected(beta=self.beta, size=self.size, draws=self.draws)


@dataclass(frozen=True, kw_only=True)
class Expected(Defense):
    """PRECODE to one who knows it: the mean instead of the draw, and no match from the bottleneck on.

    There the gradients are of the numbers drawn (Scheliga et al., 2022, arXiv:2208.04767); before it they are only
    disturbed. With `draws` above 0 it is the mean gradient of so many draws, always the same, and not the gradient of
    the mean.
    """

    beta: float
    size: int
    draws: int

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        place = bottleneck_of(model)

        def expected(params: Params, batch: Batch) -> Update:
            gradient = (
                self.mean_gradient(compute, params, batch, f"{place}.noise") if self.draws else compute(params, batch)
            )
            return _add_weighted(gradient, divergence(model, params, batch, place), self.beta)

        return expected

    def mean_gradient(self, compute: GradientFn, params: Params, batch: Batch, noise: str) -> dict[str, Tensor]:
        """One batch that holds every picture once for each draw: its loss is the mean over them all."""
        drawn = fixed_draws(self.draws * batch.images.shape[0], self.size).to(next(iter(params.values())))
        often = Batch(*(x.repeat(self.draws, *[1] * (x.dim() - 1)) for x in batch))
        gradient = compute({**params, noise: drawn}, often)
        return {name: gradient[name] for name in params}

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u for name, u in update.items() if not {BOTTLENECK, HEAD} & set(name.split("."))}


def fixed_draws(rows: int, size: int) -> Tensor:
    """Normal numbers, the same for every trial: by numpy, since `vmap` has torch draw anew for each."""
    return torch.from_numpy(default_rng(Seed().at("precode", "draws").number()).standard_normal((rows, size)))


def bottleneck_of(model: nn.Module) -> str:
    """Its name in a model that has one."""
    return next(name for name, layer in model.named_modules() if isinstance(layer, VariationalBottleneck))


def divergence(model: nn.Module, params: Params, batch: Batch, place: str) -> dict[str, Tensor]:
    """The gradient of the mean divergence of what the encoder says from the standard normal, in bits."""

    def bits(params: Params) -> Tensor:
        with output_of(model.get_submodule(f"{place}.encoder")) as encoded:
            functional_call(model, dict(params), (batch.images,))
        mean, deviation = encoded[0].chunk(2, -1)
        deviation = F.softplus(deviation)
        each = 0.5 * (mean.square() + deviation.square() - 1) - deviation.log()
        return each.flatten(1).sum(1).mean() / math.log(2)

    return torch.func.grad(bits)(dict(params))


def _add_weighted(gradient: Update, more: Update, weight: float) -> dict[str, Tensor]:
    return {name: g + weight * more[name] for name, g in gradient.items()}
