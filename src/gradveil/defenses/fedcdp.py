"""Fed-CDP (Wei et al., 2021), as ROG (Yue et al., 2023, eq. 17-18) writes it: clipping by example and by layer, noise.

`clip` = 4 is Wei et al.'s C, which ROG takes over; ROG chooses its noise by a signal-to-noise ratio, as `snr` does, so
`noise` = 1 is no paper's number. A layer's weight and bias are clipped together. Every example gets its own noise (eq.
18); only their mean is sent, so it is drawn once, at the size of the mean of them all.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Generator, Tensor, nn

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
from gradveil.defenses._per_example import clip_length, layer_of, mean_of_each, refuse_batch_statistics

PAPER = Paper("Gradient-Leakage Resilient Federated Learning", "Wei et al.", 2021, "arXiv:2107.01154")


@dataclass(frozen=True, kw_only=True)
class FedCdp(Defense):
    """Clips every layer of every example's gradient at length `clip`; adds noise of `noise` times `clip` to each.

    `snr` sets the noise on their mean instead, by its ratio to the clipped mean gradient of the step, in dB: for
    studies, since noise that follows the gradient bounds nothing.
    """

    stronger: ClassVar[tuple[str, ...]] = ("noise",)
    strength: ClassVar[Strength | None] = Strength.by_factor("noise", 1e-3, 1e2)

    clip: float = 4.0
    noise: float = NOISE
    snr: float | None = None

    def __post_init__(self) -> None:
        check_clip_and_noise("fedcdp", self.clip, self.noise, self.snr)

    def check(self, model: nn.Module) -> None:
        refuse_batch_statistics("fedcdp", model)

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        refuse_batch_statistics("fedcdp", model)

        def private(params: Params, batch: Batch) -> Update:
            mean = mean_of_each(compute, self.clip_layers, params, batch)
            if self.snr is not None:
                return add_noise_by_ratio(mean, self.snr, rng)
            return add_noise(mean, self.noise * self.clip / batch.images.shape[0] ** 0.5, rng) if self.noise else mean

        return private

    def clip_layers(self, gradient: Update) -> dict[str, Tensor]:
        """One example's gradient with every layer at most `clip` long."""
        layers: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for name, g in gradient.items():
            layers[layer_of(name)][name] = g
        short = {name: g for layer in layers.values() for name, g in clip_length(layer, self.clip).items()}
        return {name: short[name] for name in gradient}

    def surrogate(self, seen: Update) -> FedCdp:
        """Clipping without the noise: the noise's mean is zero, and clipping can be differentiated."""
        return replace(self, noise=0.0, snr=None)

    def quiet(self) -> FedCdp:
        return replace(self, noise=0.0, snr=None)

    def law(self, round: Round) -> Law | None:
        return law_of_noisy_steps(self.noise * self.clip / round.examples**0.5, self.snr, round)

    def noise_multiplier(self, layers: int) -> float:
        """One example moves all layers, each by up to `clip`: accounts that take C for all of it are too small."""
        refuse_account("fedcdp", self.snr)
        return self.noise / layers**0.5
