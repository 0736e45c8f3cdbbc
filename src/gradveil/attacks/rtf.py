"""Robbing the Fed (Fowl et al., 2022): a planted layer whose units all measure one number of a picture, in steps.

Unit i is active where the number lies above edge i, so the difference of two neighboring rows of the gradient is what
the pictures between the two edges gave; one picture alone is read exactly. Differs: the number is taken of the picture
as the model would normalize it, but read from the pixels; edges are quantiles of public pictures where there are any;
the picture goes on beside the layer, by default so that the model's output is the honest one (see `Imprint`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from gradveil.attacks.imprint.functional import FAR, FEWEST, Functional, Spread, edges_of, levels_of
from gradveil.attacks.imprint.insertion import Place, imprint_in, insert, place_of, shape_of, site, standard_of
from gradveil.attacks.imprint.module import Connection, Imprint, Rows, check_options
from gradveil.attacks.imprint.readout import count_range, differences, gradients, reconstruction
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch

PAPER = Paper(
    "Robbing the Fed: Directly Obtaining Private Data in Federated Learning with Modified Models",
    "Fowl et al.",
    2022,
    "arXiv:2110.13057",
)


def rtf(
    *,
    neurons: int = 256,
    functional: str = "mean",
    connection: Connection = "cancel",
    gain: float = 0.0,
    sparse: bool = False,
    target: float = 0.0,
    bins: Spread = "auto",
    at: str = "",
) -> RobbingTheFed:
    """Robbing the Fed: a planted layer sorts pictures into bins; a picture that is alone in its bin is read exactly.

    `neurons`: bins; `functional`: what they sort by, `mean`, `random` or `fourier:32`; `sparse`: Hardtanh, one unit per
    bin; `target`: one bin only, for this share of all pictures; `bins`: `auto` takes public pictures' quantiles where
    there are any; `at`: the layer to stand in front of, empty for the front of the model, those before it then hand the
    picture on; `connection` and `gain`: what the rest of the model gets, see `Imprint`; a gain of 0 is one that suits
    the connection.
    """
    return RobbingTheFed(
        neurons=neurons, functional=functional, connection=connection, gain=gain, sparse=sparse, target=target,
        bins=bins, at=at,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RobbingTheFed(Attack):
    """One functional, many thresholds."""

    neurons: int = 256
    functional: str = "mean"
    connection: Connection = "cancel"
    gain: float = 0.0
    sparse: bool = False
    target: float = 0.0
    bins: Spread = "auto"
    at: str = ""

    def __post_init__(self) -> None:
        check_options("rtf", self.neurons, self.connection, self.gain)
        Functional(text=self.functional)
        if not 0 <= self.target < 1:
            raise ConfigError(
                f"target = {self.target} is out of range, take a share of the pictures from 0 to 1", key="rtf"
            )

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset()  # it takes an update as it comes

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        model, place = site(model, shape_of(public, "rtf"), self.at, "rtf", seed)
        rows = self._rows(model, place, public, seed)
        parts = {"gain": self.gain, "sparse": self.sparse, "directions": 1, "seed": seed}
        return insert(model, Imprint(place.over(rows), self.connection, **parts), place)

    def check_model(self, model: nn.Module, shape: tuple[int, int, int]) -> None:
        site(model, shape, self.at, "rtf", Seed())

    def check(self, seen: Observation) -> None:
        imprint_in(seen, "rtf")

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        seen = seen.average_rounds().as_fed()
        place = place_of(seen, self.at, "rtf")
        kind = {"cumulative": not self.sparse, "bins": 1 if self.target else self.neurons}
        reads = [differences(gradient, seen.examples, **kind) for gradient in gradients(seen, "rtf")]
        note = f"rtf: {count_range(reads)} of {kind['bins']} bins held anything, for {seen.examples} pictures"
        return reconstruction(seen, reads, place, (note,))

    def _rows(self, model: nn.Module, place: Place, public: Batch | None, seed: Seed) -> Rows:
        """z = (x - mean) / std is what the functional is of; at this place arrives y = (x - m) / s."""
        like = place.mean
        mean, std = standard_of(model, place.shape, like)
        weights = Functional(text=self.functional).weights(prod(place.shape), seed.at("functional"), like)
        ratio, rest = (c.expand(place.shape).flatten() for c in (place.std / std, (place.mean - mean) / std))
        weight, offset = weights * ratio, float((weights.double() * rest.double()).sum())
        values = self._values(place, public, weight, offset)
        kind = Functional(text=self.functional)
        spread = kind.spread if self.bins == "auto" else self.bins
        edges = edges_of(levels_of(self.neurons, self.target), values, spread, kind.scale).to(like.device)
        slope = self._slopes(edges)
        bias = slope * (offset - edges)
        return Rows(weight=slope.to(like)[:, None] * weight, bias=bias.to(like))

    def _values(self, place: Place, public: Batch | None, weight: Tensor, offset: float) -> Tensor | None:
        """The functional of the public pictures, if they are to say where the bins are."""
        if public is None or len(public.images) < FEWEST or self.bins != "auto":
            return None
        return place.arrives_as(public.images.to(weight)).double() @ weight.double() + offset

    def _slopes(self, edges: Tensor) -> Tensor:
        """1, or for Hardtanh what takes a unit from 0 to 1 within its bin."""
        if not self.sparse:
            return torch.ones_like(edges)
        last = edges[-1:] + FAR * (edges[-1] - edges[1])
        return 1 / (torch.cat([edges[1:], last]) - edges).clamp_min(1e-12)
