"""The attacker who knows LODA (Wan et al., 2022, section 4.2): invert the update, then the encoding by equation 6.

The encodings come out of an inversion of the updates, or are given where the threat model grants them. How to search
for the picture behind one (c, TV, steps) the paper settles by looking at the truth; here the attacker rehearses: it
encodes public pictures itself, tries every way on them, and takes the one that recovers them best. The ways are those
of the paper with a TV prior and a match of features besides, and the encoding as it is. `loda-inverse-paper` is the
paper's choice: c = 1 and 100 steps. It leaves start and rate open: the mean public picture, and Adam at 0.05.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from gradveil.attacks.adam_l1 import adam_l1
from gradveil.attacks.gradinversion import gradinversion
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.sgd_cosine import sgd_cosine
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.preset import Preset
from gradveil.core.seeds import Seed
from gradveil.defenses.loda.encode import at_once
from gradveil.defenses.loda.inverse import Decoder, Way
from gradveil.defenses.loda.loda import PAPER as PAPER
from gradveil.defenses.loda.loda import Loda, loda_of, shape_of, without_loda
from gradveil.defenses.loda.obscure import Scale
from gradveil.defenses.loda.starts import hash_of, public_pool
from gradveil.engine.labels import given_or_idlg
from gradveil.metrics.psnr import peak_signal_to_noise

Inner = Literal["invertgrad", "adam-l1", "gradinversion", "sgd-cosine"]
INNER: dict[str, Callable[..., Attack]] = {
    "invertgrad": invertgrad,
    "adam-l1": adam_l1,
    "gradinversion": gradinversion,
    "sgd-cosine": sgd_cosine,
}
WEIGHTS, SMOOTHNESS, LENGTHS = (0.0, 1.0), (0.1, 1.0), (50, 100, 200, 400)  # the paper tries c = 5, 10, 20 too
AS_IT_IS = Way(steps=0)


def loda_inverse(
    *,
    inner: Inner = "invertgrad",
    steps: int = 2400,
    restarts: int | None = None,
    c: tuple[float, ...] | float = WEIGHTS,
    tv: tuple[float, ...] | float = SMOOTHNESS,
    lengths: tuple[int, ...] | int = LENGTHS,
    features: bool = True,
    rehearsal: int = 4,
    projected: bool = True,
) -> LodaInverse:
    """Inverts the update with `inner`, then LODA's encoding, with the settings that work best on public pictures.

    `steps`, `restarts`: of the inner attack; `c` (and LODA's own), `tv`, `lengths` (steps of the second search): all
    tried; `features`: also match features; `rehearsal`: public pictures that they are tried on, 0: the first of each
    is taken; `projected`: whether the gradient is projected as LODA's own is.
    """
    leaked, ways = INNER[inner](steps=steps, restarts=restarts), {"c": _all_of(c), "tv": _all_of(tv)}
    parts = {"features": features, "rehearsal": rehearsal, "projected": projected}
    return LodaInverse(inner=leaked, **ways, lengths=_all_of(lengths), **parts)


def _all_of(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, int | float) else tuple(value)


loda_inverse_paper = Preset(
    loda_inverse,
    "The attack of LODA's paper on LODA: equation 6 with c = 1, 100 steps, no prior, no projection.\n\n"
    "The options are those of `loda-inverse`.",
    fixed=("tv", "features", "rehearsal", "projected"),
    c=1.0, tv=(0.0,), lengths=100, features=False, rehearsal=0, projected=False,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LodaInverse(Attack):
    """An inversion of the update, and one of the encoding where the attacker knows that there is one."""

    inner: Attack
    c: tuple[float, ...]
    tv: tuple[float, ...]
    lengths: tuple[int, ...]
    features: bool = False
    rehearsal: int = 4  # pictures; 0: the first of everything is taken
    projected: bool = True

    def __post_init__(self) -> None:
        if not (self.c and self.tv and self.lengths) or min(self.lengths) < 1 or self.rehearsal < 0:
            raise ConfigError("nothing to try, give c, tv, lengths >= 1 and rehearsal >= 0", key="loda-inverse")
        if min(*self.c, *self.tv) < 0:
            raise ConfigError("c and tv must not be negative, take numbers >= 0", key="loda-inverse")

    @property
    def steps(self) -> int:
        return self.inner.steps  # type: ignore[attr-defined]

    @property
    def restarts(self) -> int:
        return self.inner.restarts  # type: ignore[attr-defined]

    def undefended(self) -> Attack:
        return self.inner.undefended()

    def check(self, seen: Observation) -> None:
        self.inner.check(seen)

    def prior_only(self) -> Attack:
        return replace(self, inner=self.inner.prior_only())

    def scaled(self, factor: float) -> Attack | None:
        inner = self.inner.scaled(factor)
        return None if inner is None else replace(self, inner=inner)

    @property
    def evaluations(self) -> tuple[int, int] | None:
        return self.inner.evaluations

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        loda = loda_of(seen.defense)
        if loda is None:
            return self.inner.reconstruct(seen, seed, compute)
        got = _from_encodings(seen) if seen.knowledge.encodings is not None else self.invert_update(seen, seed, compute)
        with compute.active():
            images, way = self.invert_encodings(got.images, seen, loda)
        note = f"loda-inverse: {way}" + ("" if seen.knowledge.encodings is None else ", from the encodings themselves")
        return replace(got, images=images, notes=(*got.notes, note))

    def invert_update(self, seen: Observation, seed: Seed, compute: Compute) -> Reconstruction:
        """The encodings, as far as the updates tell. They are the same in every round, so rounds are joined up."""
        return self.inner.reconstruct(replace(seen, defense=without_loda(seen.defense)), seed, compute)

    def invert_encodings(self, encodings: Tensor, seen: Observation, loda: Loda) -> tuple[Tensor, Way]:
        flat = encodings.flatten(0, 1).nan_to_num(0, 0, 0).clamp(0, 1)
        decoder, mean = decoder_of(loda, flat, self.projected)
        way = Way(c=self.c[0], tv=self.tv[0], steps=self.lengths[0])
        if self.rehearsal:
            pictures = rehearsal_pictures(seen, loda, self.rehearsal, flat)
            way = rehearse(Rehearsal(self, loda, hash_of(pictures), str(flat.dtype), pictures))
        if not way.steps:
            return encodings, way
        parts = [decoder.runs(part, mean, way, (way.steps,))[way.steps] for part in flat.split(at_once(flat))]
        return torch.cat(parts).unflatten(0, encodings.shape[:2]), way

    def ways(self, loda: Loda) -> Iterator[Way]:
        weights = dict.fromkeys((loda.c, *self.c))
        yield from (Way(c=weight, tv=smooth) for weight, smooth in product(weights, self.tv))
        if self.features:
            yield from (Way(aim="features", tv=smooth) for smooth in self.tv)


def decoder_of(loda: Loda, like: Tensor, projected: bool) -> tuple[Decoder, Tensor]:
    """What the search goes by, and where it starts."""
    features = loda.features(like)
    scale = Scale.of(loda.units, features.model, like)
    decoder = Decoder(extract=features, reduce=loda.reduce, scale=scale, projected=projected)
    return decoder, public_pool(loda.public, shape_of(like)).mean(0).to(like)


@dataclass(frozen=True)
class Rehearsal:
    """What a choice among the ways depends on; the pictures by their hash."""

    attack: LodaInverse
    loda: Loda
    hashed: str
    dtype: str
    pictures: Tensor = field(compare=False)


@lru_cache(maxsize=16)
def rehearse(trial: Rehearsal) -> Way:
    """The way with the highest mean PSNR on public pictures that the attacker has encoded itself."""
    pictures, encodings = trial.pictures, trial.loda.encode(trial.pictures)
    decoder, mean = decoder_of(trial.loda, pictures, trial.attack.projected)
    best, way = decibels(encodings, pictures), AS_IT_IS
    for tried in trial.attack.ways(trial.loda):
        for length, got in decoder.runs(encodings, mean, tried, trial.attack.lengths).items():
            if (reached := decibels(got, pictures)) > best:
                best, way = reached, replace(tried, steps=length)
    return way


def decibels(got: Tensor, pictures: Tensor) -> float:
    return peak_signal_to_noise(got, pictures).mean().item()


def rehearsal_pictures(seen: Observation, loda: Loda, count: int, like: Tensor) -> Tensor:
    """Like the private ones where the attacker has such, else the last of those that encodings start from."""
    if seen.public is not None and len(seen.public.images) >= count:
        return seen.public.images[:count].to(like)
    return public_pool(loda.public, shape_of(like))[-count:].to(like)


def _from_encodings(seen: Observation) -> Reconstruction:
    """The encodings as they are, with nothing left to invert."""
    encodings = seen.knowledge.encodings
    assert encodings is not None
    labels = given_or_idlg(seen)
    clients, examples = encodings.shape[:2]
    return Reconstruction(
        images=encodings,
        labels=encodings.new_zeros(clients, examples, *seen.target.shape) if labels is None else labels.to(encodings),
        found=torch.ones(clients, examples, dtype=torch.bool, device=encodings.device),
        loss=encodings.new_zeros(clients),
    )
