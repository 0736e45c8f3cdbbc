"""DP-SGD (Abadi et al., 2016, algorithm 1): every example's gradient is clipped, and their sum gets normal noise.

`clip` and `noise` are the paper's C and sigma: the sum is noised by sigma * C, then divided by the size of the batch.
Both are 1 unless told; they belong to a model and a budget, and no paper's choice fits all. Differs: the batch is what
the scenario says and not sampled at random; `gradveil.dp.accountant` computes what the same noise is worth if it were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from torch import Generator, nn

from gradveil.core.defense import Defense
from gradveil.core.law import Law, Round
from gradveil.core.paper import Paper
from gradveil.core.strength import Strength
from gradveil.core.types import Batch, GradientFn, Params, Update
from gradveil.defenses._noise import (
    NOISE,
    add_noise,
    add_noise_by_ratio,
    check_clip_and_noise,
    law_of_noisy_steps,
    refuse_account,
)
from gradveil.defenses._per_example import clip_length, mean_of_each, refuse_batch_statistics

PAPER = Paper("Deep Learning with Differential Privacy", "Abadi et al.", 2016, "arXiv:1607.00133")


@dataclass(frozen=True, kw_only=True)
class Dpsgd(Defense):
    """Clips every example's gradient at length `clip` and adds noise of `noise` times `clip` to their sum.

    `snr` sets the noise by its ratio to the clipped mean gradient of the step instead, in dB: for studies, since noise
    that follows the gradient bounds nothing.
    """

    stronger: ClassVar[tuple[str, ...]] = ("noise",)
    strength: ClassVar[Strength | None] = Strength.by_factor("noise", 1e-3, 1e2)

    clip: float = 1.0
    noise: float = NOISE
    snr: float | None = None

    def __post_init__(self) -> None:
        check_clip_and_noise("dpsgd", self.clip, self.noise, self.snr)

    def check(self, model: nn.Module) -> None:
        refuse_batch_statistics("dpsgd", model)

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        refuse_batch_statistics("dpsgd", model)

        def private(params: Params, batch: Batch) -> Update:
            mean = mean_of_each(compute, partial(clip_length, clip=self.clip), params, batch)
            if self.snr is not None:
                return add_noise_by_ratio(mean, self.snr, rng)
            return add_noise(mean, self.noise * self.clip / batch.images.shape[0], rng) if self.noise else mean

        return private

    def surrogate(self, seen: Update) -> Dpsgd:
        """Clipping without the noise: the noise's mean is zero, and clipping can be differentiated."""
        return replace(self, noise=0.0, snr=None)

    def quiet(self) -> Dpsgd:
        return replace(self, noise=0.0, snr=None)

    def law(self, round: Round) -> Law | None:
        return law_of_noisy_steps(self.noise * self.clip / round.examples, self.snr, round)

    def noise_multiplier(self, layers: int) -> float:
        refuse_account("dpsgd", self.snr)
        return self.noise
