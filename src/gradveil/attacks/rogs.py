"""ROGS (Yue et al., Gradient Obfuscation Gives a False Sense of Security in Federated Learning, 2023, section 6).

A reconstruction is replaced by the picture of a generator that is most like it: less exact pixel by pixel, but sharp
and of the kind that the generator knows. The released code leaves this step empty, so it is written from equations 19
and 20 and appendix A (both weights 1, 1,000 steps of Adam). The paper has BigGAN; any generator does.
Differs: `rogs` takes the squared difference as a mean over pixels, beside which LPIPS counts (the length that the paper
writes is a hundred times larger), and the best of four starts; the paper leaves rate and start open. `rogs-paper` is
as written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from gradveil.core.attack import Attack, Reconstruction, Requirement, Use, times
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.core.seeds import Seed
from gradveil.engine.gan_inversion import GanInversion, Pixels, Targets
from gradveil.engine.perceptual import Perceptual
from gradveil.generators.conditional import Conditional
from gradveil.generators.generator import AUTOENCODER, Generator, is_user_generator, kind_of, load_generator
from gradveil.metrics.weights import WHERE

PAPER = Paper(
    "Gradient Obfuscation Gives a False Sense of Security in Federated Learning", "Yue et al.", 2023, "USENIX Security"
)
NO_GENERATOR = "rogs: no generator is given, give generator=FILE; gradveil train-gan makes one"
NO_LPIPS = "rogs: without LPIPS weights (lpips=FILE) pictures are compared by pixels alone"


def rogs(
    *,
    generator: str = "",
    lpips: str = "",
    inner: str = "rog",
    steps: int = 1000,
    restarts: int = 4,
    rate: float = 0.05,
    perceptual: float = 1.0,
    pixels: Pixels = "mean",
    drawn: int = 16,
    reach: float = 3.0,
    search_class: bool = False,
) -> Rogs:
    """ROGS: runs ROG, then finds the generator's picture that is most like the result, by pixels and LPIPS.

    `generator`, `lpips`: files; `inner`: what comes first, with its options ("rog:steps=50"); `steps`, `restarts`,
    `rate`: of the search in the latent; `drawn`: random latents to begin at the best of; `reach`: of noise, in
    standard deviations; `search_class`: leave the class of the label.
    """
    search = GanInversion(
        steps=steps,
        restarts=restarts,
        rate=rate,
        drawn=drawn,
        pixels=pixels,
        perceptual=perceptual,
        reach=reach,
        search_class=search_class,
    )
    return Rogs(inner=_attack(inner), generator=generator, lpips=lpips, search=search)


rogs_paper = Preset(
    rogs,
    "ROGS as its paper writes it: length of the difference plus LPIPS, one random start, no limit on the noise.\n\n"
    "The options are those of `rogs`.",
    fixed=("rate", "perceptual", "pixels", "drawn", "reach", "search_class"),
    pixels="norm", restarts=1, drawn=1, reach=math.inf,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rogs(Attack):
    """Another attack's pictures, each replaced by the generated one that is most like it."""

    inner: Attack
    generator: str
    lpips: str
    search: GanInversion

    def __post_init__(self) -> None:
        if self.search.steps < 1 or self.search.restarts < 1 or self.search.drawn < 1:
            raise ConfigError("steps, restarts and drawn must be 1 or more", key="rogs")
        if min(self.search.rate, self.search.reach) <= 0 or self.search.perceptual < 0:
            raise ConfigError("rate and reach must be above 0, perceptual 0 or more", key="rogs")
        if self.generator and not is_user_generator(self.generator) and kind_of(self.generator) == AUTOENCODER:
            raise ConfigError(
                f"{self.generator}: an autoencoder has no random latents, give a GAN (gradveil train-gan)"
            )
        if self.lpips and not Path(self.lpips).is_file():
            raise ConfigError(f"{self.lpips}: no such file, give AlexNet's LPIPS weights; {WHERE}")

    @property
    def steps(self) -> int:
        return self.search.steps

    @property
    def restarts(self) -> int:
        return self.search.restarts

    @property
    def uses(self) -> frozenset[Use]:
        return self.inner.uses

    @property
    def requires(self) -> frozenset[Requirement]:
        return self.inner.requires

    def undefended(self) -> Rogs:
        return replace(self, inner=self.inner.undefended())

    def networks(self) -> tuple[str, ...]:
        if not self.generator:
            raise ConfigError(NO_GENERATOR)
        networks = () if is_user_generator(self.generator) else (self.generator,)
        return (*self.inner.networks(), *networks)

    def check(self, seen: Observation) -> None:
        self.inner.check(seen)

    def prior_only(self) -> Rogs:
        return replace(self, inner=self.inner.prior_only())

    def scaled(self, factor: float) -> Rogs:
        search = replace(self.search, steps=times(self.search.steps, factor))
        return replace(self, inner=self.inner.scaled(factor) or self.inner, search=search)

    @property
    def evaluations(self) -> tuple[int, int] | None:
        return self.inner.evaluations

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        if not self.generator:
            raise ConfigError(NO_GENERATOR)
        return self.redraw(self.inner.reconstruct(seen, seed, compute), seen, seed, compute)

    def redraw(self, got: Reconstruction, seen: Observation, seed: Seed, compute: Compute) -> Reconstruction:
        """The second half: what an attack found, as the generator draws it."""
        generator = generator_like(self.generator, got.images, seen.classes)
        judge = Perceptual.of(self.lpips, got.images) if self.lpips and self.search.perceptual else None
        with compute.active():
            images = self.search.invert(targets_of(got, generator, seen), generator, judge, seed.at("rogs"), compute)
        notes = (*got.notes, *self.notes(generator, seen))
        return replace(got, images=images.unflatten(0, got.images.shape[:2]), notes=notes)

    def notes(self, generator: Generator, seen: Observation) -> tuple[str, ...]:
        other = isinstance(generator, Conditional) and generator.classes != seen.classes
        differs = "rogs: the generator has {} classes and the model {}, so the class is searched for"
        classes = (differs.format(cast(Conditional, generator).classes, seen.classes),) if other else ()
        return (*classes, *(() if self.lpips or not self.search.perceptual else (NO_LPIPS,)))


def targets_of(got: Reconstruction, generator: Generator, seen: Observation) -> Targets:
    """Every picture on its own; what is no number is mid-gray."""
    images = got.images.flatten(0, 1).nan_to_num(0.5, 0.5, 0.5).clamp(0, 1)
    known = isinstance(generator, Conditional) and generator.classes == seen.classes and seen.target.is_label
    names = tuple(f"{name}/{example}" for name in seen.names for example in range(got.images.shape[1]))
    return Targets(images, got.labels.flatten(0, 1).to(images).nan_to_num() if known else None, names)


def generator_like(spec: str, images: Tensor, classes: int) -> Generator:
    """The generator where the pictures are, in their precision."""
    stamp = 0 if is_user_generator(spec) else Path(spec).stat().st_mtime_ns
    shape = cast(tuple[int, int, int], tuple(images.shape[-3:]))
    return _load_like(spec, stamp, str(images.device), images.dtype, classes, shape)


@lru_cache(maxsize=4)
def _load_like(
    spec: str, stamp: int, device: str, dtype: torch.dtype, classes: int, shape: tuple[int, int, int]
) -> Generator:
    module = cast(torch.nn.Module, load_generator(spec, classes=classes, shape=shape))
    return cast(Generator, module.to(device, dtype))


def _attack(text: str) -> Attack:
    """An attack of the catalogue with its options, as on the command line."""
    from gradveil.attacks import ATTACKS
    from gradveil.core.check import check_options
    from gradveil.core.choice import parse_choice

    choice = parse_choice(text, "inner")
    if choice.name not in ATTACKS or choice.name.startswith("rogs"):
        raise unknown("attack", choice.name, [name for name in ATTACKS if not name.startswith("rogs")], "inner")
    options: dict[str, Any] = check_options(ATTACKS[choice.name], choice.options, lambda key: f"inner: {key}", "")
    attack = ATTACKS[choice.name](**options)
    if "malicious" in attack.requires:
        raise ConfigError(f"{choice.name} modifies the model, name an attack that does not", key="inner")
    return attack
