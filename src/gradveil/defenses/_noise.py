"""Noise: added to what is sent or to a gradient, how much of it, and what an attacker who knows how much can do.

Independent noise of one scale cannot be undone, and it makes no tensor more doubtful than another: the flat cosine and
the squared distance are the likelihood under it already (the L1 distance is, for Laplacian noise). Re-weighting or
shrinking tensors by their signal-to-noise ratio lost against them when measured. What knowing the scale is worth is how
far to trust the match against the priors: see `Distrusting`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.law import Law, Normal, Round, Same
from gradveil.core.seeds import normal
from gradveil.core.strength import Strength
from gradveil.core.types import Update

NOISE = 1.0


def add_noise(gradient: Mapping[str, Tensor], deviation: Tensor | float, rng: Generator) -> dict[str, Tensor]:
    return {name: g + deviation * normal(g.shape, rng, g) for name, g in gradient.items()}


def add_noise_by_ratio(gradient: Mapping[str, Tensor], snr: float, rng: Generator) -> dict[str, Tensor]:
    """With noise so strong that 10 log10(|gradient|^2 / E|noise|^2) is `snr`, all tensors together."""
    power = energy(gradient) / numbers(gradient)
    return add_noise(gradient, power.sqrt() * 10 ** (-snr / 20), rng)


def check_clip_and_noise(defense: str, clip: float, noise: float, snr: float | None) -> None:
    """With an `snr` the noise follows the gradient, and no clip has to bound that."""
    if snr is not None and not SNR[0] <= snr <= SNR[1]:
        raise ConfigError(f"{defense}: snr = {snr} dB is out of range, take {SNR[0]:g} to {SNR[1]:g}")
    if snr is not None and noise != NOISE:
        raise ConfigError(f"{defense}: noise and snr both say how much noise, give one of them")
    if not clip > 0:
        raise ConfigError(f"{defense}: clip = {clip} is not a length, take a number > 0")
    if not (noise >= 0 and math.isfinite(noise)):
        raise ConfigError(f"{defense}: noise = {noise} is not a multiple of clip, take a number >= 0")
    if noise > 0 and snr is None and math.isinf(clip):
        raise ConfigError(f"{defense}: clip = {clip} bounds nothing that noise could cover, take a finite number")


def refuse_account(defense: str, snr: float | None) -> None:
    """Epsilon speaks of noise whose size is fixed beforehand."""
    if snr is not None:
        raise ConfigError(
            f"{defense}: no epsilon holds with snr = {snr:g} dB, since the size of the noise depends on the client's "
            "own gradient, give noise instead"
        )


def law_of_noisy_steps(deviation: float, snr: float | None, round: Round) -> Law | None:
    """Of normal noise in the gradient of every local step: exact for one step, since the noise of an earlier step
    moves the weights of later ones. None where the noise goes through more than a sum, as in Adam."""
    if deviation and not round.training.is_linear:
        return None
    one = round.training.steps == 1
    if snr is not None:
        return Normal(relative=10 ** (-snr / 20)).mean_of(round.members) if one else None
    if deviation == 0:
        return Same()
    return Normal(deviation=deviation * round.growth, exact=one).mean_of(round.members)


SCALE = 1e-2
LEAST_SHARE = 1e-2  # of the signal; below it the estimate is noise itself
SNR = (-100.0, 200.0)  # dB


@dataclass(frozen=True, kw_only=True)
class AdditiveNoise(Defense, ABC):
    """Independent noise of mean zero on every number; one of three forms says how much.

    `scale` is the scale of the distribution as it is. `relative` is the expected length of the noise by the length of
    the update, and `snr` the same in dB: 10 log10(|update|^2 / E|noise|^2) = -20 log10(relative).
    """

    stronger: ClassVar[tuple[str, ...]] = ("scale", "relative")
    strength: ClassVar[Strength | None] = Strength.by_factor("scale", 1e-4, 1e3)
    name: ClassVar[str]
    deviation: ClassVar[float]  # of noise of scale 1

    scale: float = SCALE
    relative: float | None = None
    snr: float | None = None
    distrust: float | None = None  # of the attacker who knows: see `Distrusting`

    def __post_init__(self) -> None:
        for option in ("scale", "relative", "distrust"):
            value = getattr(self, option)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise ConfigError(f"{self.name}: {option} = {value} is out of range, take a number >= 0")
        if self.snr is not None and not SNR[0] <= self.snr <= SNR[1]:
            raise ConfigError(f"{self.name}: snr = {self.snr} dB is out of range, take {SNR[0]:g} to {SNR[1]:g}")
        given = [option for option in ("relative", "snr") if getattr(self, option) is not None]
        if len(given) == 2 or (given and self.scale != SCALE):
            raise ConfigError(f"{self.name}: scale, relative and snr say the same thing, give one of them")

    @abstractmethod
    def draw_noise(self, like: Tensor, rng: Generator) -> Tensor:
        """Noise of scale 1."""

    def update(self, update: Update, rng: Generator) -> Update:
        scale = self.scale_for(update)
        return {name: u + scale * self.draw_noise(u, rng) for name, u in update.items()}

    def scale_for(self, update: Update) -> Tensor | float:
        if self.noise_by_signal is None:
            return self.scale
        return (self.noise_by_signal * energy(update) / numbers(update)).sqrt() / self.deviation

    @property
    def noise_by_signal(self) -> float | None:
        """E|noise|^2 / |update|^2, where it is fixed."""
        if self.snr is not None:
            return 10 ** (-self.snr / 10)
        return None if self.relative is None else self.relative**2

    def quiet(self) -> Defense:
        return Defense()

    def law(self, round: Round) -> Law | None:
        is_silent = self.scale == 0 if self.noise_by_signal is None else self.noise_by_signal == 0
        return Same() if is_silent else self.law_of_noise().mean_of(round.members)

    @abstractmethod
    def law_of_noise(self) -> Law:
        """Of one client."""

    def surrogate(self, seen: Update) -> Defense:
        """Its mean, which is no defense, unless the attacker's `distrust` is above zero."""
        if not self.distrust:
            return Defense()
        share = self.signal_share(seen)
        return Distrusting(seen=seen, share=share, weight=share**self.distrust)

    def signal_share(self, seen: Update) -> Tensor:
        """How much of the energy received is the update's own."""
        received = energy(seen)
        if self.noise_by_signal is not None:
            share = torch.full_like(received, 1 / (1 + self.noise_by_signal))
        else:
            noise = numbers(seen) * (self.scale * self.deviation) ** 2
            share = 1 - noise / received.clamp_min(torch.finfo(received.dtype).tiny)
        return share.clamp_min(LEAST_SHARE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Distrusting(Defense):
    """Turns the dummy's update toward the one received, so that 1 - cosine is `weight` times what it was.

    The match then counts less against the priors: Bayes' rule, under which the weight of the match is one by the
    variance of the noise. The dummy is also made longer, as noise makes an update.
    """

    seen: Mapping[str, Tensor]
    share: Tensor
    weight: Tensor

    def update(self, update: Update, rng: Generator) -> Update:
        seen = {name: self.seen[name] for name in update}  # a surrogate before this one may have left some out
        tiny = torch.finfo(self.weight.dtype).tiny ** 0.5
        own, target = energy(update).sqrt().clamp_min(tiny), energy(seen).sqrt().clamp_min(tiny)
        cosine = torch.stack([(u * seen[name]).sum() for name, u in update.items()]).sum() / (own * target)
        turned = 1 - self.weight * (1 - cosine)
        kept = (self.weight * (1 + turned) / (1 + cosine).clamp_min(1e-3)).sqrt()  # sine of the new angle by the old
        along, longer = (turned - kept * cosine) * own / target, self.share.rsqrt()
        return {name: longer * (kept * u + along * seen[name]) for name, u in update.items()}


def energy(update: Update) -> Tensor:
    """The squared length of the whole update."""
    return torch.stack([u.square().sum() for u in update.values()]).sum()


def numbers(update: Update) -> int:
    return sum(u.numel() for u in update.values())
