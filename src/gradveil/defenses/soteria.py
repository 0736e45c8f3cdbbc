"""Soteria (Sun et al., 2021): one fully connected layer sends the gradient of a representation with features missing.

The features r_i that go are those with the smallest ||dr_i/dX|| / (|r_i| + 0.1), where X is the picture: the ones whose
loss moves a reconstruction most. 0.1 is from the authors' attack code (their notebook has none) and keeps features that
are zero from being divided by it. `rate` = 0.8 is ROG's (Yue et al., 2023) and the paper's highest. Differs: features
are chosen for every picture, as the paper writes it; the code adds the scores of a batch up and chooses once. The same
for one picture. The count is exact where the code takes a percentile, and the Jacobian is taken at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.func import functional_call, vjp, vmap

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Batch, GradientFn, Params, Update
from gradveil.defenses._layers import input_of, linear_layer
from gradveil.defenses._per_example import mean_of_each, refuse_batch_statistics

PAPER = Paper(
    "Soteria: Provable Defense against Privacy Leakage in Federated Learning from Representation Perspective",
    "Sun et al.",
    2021,
    "arXiv:2012.06043",
)
OFFSET = 0.1
FEATURES = 256  # whose slopes are taken at once: each is as large as a picture


@dataclass(frozen=True, kw_only=True)
class Soteria(Defense):
    """Sets columns of one linear layer's gradient to zero; `rate` is their share.

    `layer` names it; without a name it is the last one.
    """

    stronger: ClassVar[tuple[str, ...]] = ("rate",)
    strength: ClassVar[Strength | None] = Strength.by_rest("rate", 2)

    rate: float = 0.8
    layer: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise ConfigError(f"soteria: rate = {self.rate} is out of range, take 0 <= rate < 1")

    def check(self, model: nn.Module) -> None:
        refuse_batch_statistics("soteria", model)
        linear_layer("soteria", model, self.layer)

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        refuse_batch_statistics("soteria", model)
        layer = linear_layer("soteria", model, self.layer)
        count = round(self.rate * model.get_parameter(f"{layer}.weight").shape[1])
        if count == 0:
            return compute

        def pruned(params: Params, batch: Batch) -> Update:
            kept = torch.stack([_mask_of(scores(model, params, image, layer), count) for image in batch.images])
            return mean_of_each(compute, partial(_without_columns, f"{layer}.weight"), params, batch, kept)

        return pruned

    def surrogate(self, seen: Update) -> Defense:
        """The match without the defended weight: all others are as they were (Balunovic et al., 2022)."""
        return Unmatched(f"{self.layer or _last_matrix(seen)}.weight")


@dataclass(frozen=True)
class Unmatched(Defense):
    """Leaves one parameter out of what is matched."""

    parameter: str

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u for name, u in update.items() if name != self.parameter}


def _last_matrix(seen: Update) -> str:
    """The layer of the last matrix by name, as a model without a named layer defends it."""
    return [name for name, u in seen.items() if u.dim() == 2 and name.endswith(".weight")][-1].removesuffix(".weight")


def scores(model: nn.Module, params: Params, image: Tensor, layer: str) -> Float[Tensor, " feature"]:
    """||dr_i/dX|| / (|r_i| + 0.1) of every feature of the layer's input, for one picture."""

    def representation(image: Tensor) -> Tensor:
        with input_of(model.get_submodule(layer)) as entered:
            functional_call(model, dict(params), (image.unsqueeze(0),))
        if entered[0].dim() != 2:
            shape = tuple(entered[0].shape)
            raise ConfigError(f"soteria: layer {layer!r} gets {shape}, not one row for each picture, choose another")
        return entered[0].squeeze(0)

    features, pull = vjp(representation, image)[:2]
    each = torch.eye(len(features), dtype=features.dtype, device=features.device)
    slopes = vmap(lambda one: pull(one)[0].norm(), chunk_size=FEATURES)(each)
    return slopes / (features.abs() + OFFSET)


def _mask_of(scores: Tensor, count: int) -> Bool[Tensor, " feature"]:
    """All but the `count` smallest; of equal ones the earlier go first."""
    kept = torch.ones_like(scores, dtype=torch.bool)
    kept[scores.argsort(stable=True)[:count]] = False
    return kept


def _without_columns(weight: str, gradient: Update, kept: Tensor) -> dict[str, Tensor]:
    return {name: g * kept if name == weight else g for name, g in gradient.items()}
