"""When the Curious Abandon Honesty (Boenisch et al., 2023): trap weights that one picture of a batch activates alone.

Half of each row is negative, the other half has the same sizes times a scale below 1, so that most pictures stay below
zero; what one picture alone activates is that picture times a number. Differs: with public pictures the scale is 1 and
each row has a bias tuned for the size of the batch, and rows can be chosen among others (`separate`); `scale` and a
place behind the normalization give the published setting. A published code drew the weights with either sign (breaching
up to version 0.1.2); here the halves are halves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, prod
from sys import float_info

import torch
from torch import nn

from gradveil.attacks.imprint.copy_aware_traps import Rehearsal, separating_rows
from gradveil.attacks.imprint.functional import FEWEST
from gradveil.attacks.imprint.insertion import Place, imprint_in, insert, place_of, shape_of, site
from gradveil.attacks.imprint.module import Connection, Imprint, Rows, check_options
from gradveil.attacks.imprint.readout import count_range, gradients, reconstruction
from gradveil.attacks.imprint.traps import UNTUNED, trap_rows, tuned_bias
from gradveil.attacks.imprint.unit_pictures import candidates
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.oasis import Oasis

PAPER = Paper(
    "When the Curious Abandon Honesty: Federated Learning Is Not Private",
    "Boenisch et al.",
    2023,
    "arXiv:2112.02918",
)
TINY = float_info.min
DIRECTIONS = 8  # ways on for the hidden units: mixtures of two pictures then differ from unit to unit


def cah(
    *,
    neurons: int = 256,
    examples: int = 8,
    scale: float = 0.0,
    sigma: float = 0.5,
    mu: float = 0.0,
    connection: Connection = "cancel",
    gain: float = 0.0,
    box: float = 0.02,
    same: float = 1e-3,
    at: str = "",
    separate: str = "",
) -> TrapWeights:
    """Curious Abandon Honesty: planted trap weights; a picture that activates one of them alone is read exactly.

    `neurons`: rows; `examples`: pictures per update that they are tuned for; `scale`: of the positive half, with
    `mu` the bias; 0: tuned on public pictures; `sigma`: size of the weights; `box`: how far outside [0, 1] a pixel may
    lie; `same`: the RMS difference below which two are one picture; `at`, `connection`, `gain`: as for `rtf`;
    `separate`: transforms of a known `oasis`, such as "major+shear": rows are chosen on public pictures to tell a
    picture from its copies, which are fed beside the `examples`.
    """
    return TrapWeights(
        neurons=neurons, examples=examples, scale=scale, sigma=sigma, mu=mu, connection=connection, gain=gain, box=box,
        same=same, at=at, separate=separate,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrapWeights(Attack):
    """Rows of their own, read one by one."""

    neurons: int = 256
    examples: int = 8
    scale: float = 0.0
    sigma: float = 0.5
    mu: float = 0.0
    connection: Connection = "cancel"
    gain: float = 0.0
    box: float = 0.02
    same: float = 1e-3
    at: str = ""
    separate: str = ""

    def __post_init__(self) -> None:
        check_options("cah", self.neurons, self.connection, self.gain)
        for option, least in (("examples", 1), ("scale", 0), ("box", 0), ("sigma", TINY), ("same", TINY)):
            if not least <= (value := getattr(self, option)) < inf:
                wanted = "> 0" if least == TINY else f">= {least}"
                raise ConfigError(f"{option} = {value} is out of range, take a number {wanted}", key="cah")
        if not isfinite(self.mu):
            raise ConfigError(f"mu = {self.mu} is no number, take a finite one", key="cah")
        if self.separate and self.scale:
            raise ConfigError("scale and separate both say what the rows are, give one of them", key="cah")
        Oasis(transforms=self.separate or "none")  # refuses what is not known

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset({"defense"}) if self.separate else frozenset()

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        model, place = site(model, shape_of(public, "cah"), self.at, "cah", seed)
        rows = self._traps(place, public, seed)
        parts = {"gain": self.gain, "sparse": False, "directions": DIRECTIONS, "seed": seed}
        return insert(model, Imprint(place.over(rows), self.connection, **parts), place)

    def check_model(self, model: nn.Module, shape: tuple[int, int, int]) -> None:
        site(model, shape, self.at, "cah", Seed())

    def check(self, seen: Observation) -> None:
        imprint_in(seen, "cah")

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        seen = seen.average_rounds().as_fed()
        place = place_of(seen, self.at, "cah")
        how = {"box": self.box, "same": self.same, "seed": Seed(), "consistent": bool(self.separate)}
        reads = [candidates(gradient, place, seen.examples, **how) for gradient in gradients(seen, "cah")]
        note = f"cah: {count_range(reads)} of {self.neurons} units were activated, by {seen.examples} pictures"
        return reconstruction(seen, reads, place, (note,))

    def _traps(self, place: Place, public: Batch | None, seed: Seed) -> Rows:
        like = place.mean
        if self.separate:
            return separating_rows(self.neurons, self.sigma, self._rehearsal(place, public, seed))
        tuned = not self.scale and public is not None and len(public.images) >= FEWEST
        scale = self.scale or (1.0 if tuned else UNTUNED)
        weight = trap_rows(self.neurons, prod(place.shape), self.sigma, scale, seed, like)
        if not tuned or public is None:
            return Rows(weight=weight, bias=torch.full_like(weight[:, 0], self.mu))
        return Rows(weight=weight, bias=tuned_bias(weight, place.arrives_as(public.images.to(like)), self.examples))

    def _rehearsal(self, place: Place, public: Batch | None, seed: Seed) -> Rehearsal:
        pictures = torch.empty(0, *place.shape) if public is None else public.images
        copies = Oasis(transforms=self.separate).of_each
        how = {"copies": copies, "examples": self.examples, "seed": seed.at("separate")}
        return Rehearsal(place=place, pictures=pictures.to(place.mean), **how)
