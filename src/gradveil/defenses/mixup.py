"""Mixup as a defense (Zhang et al., 2018): every picture is sent into training as a mixture with others of its client.

Differs from Mixup for accuracy, which mixes two: k of them with weights below a bound, as LODA audits it (k = 4, 6).
What is mixed is linear, so whoever knows the weights needs no more than linear algebra to undo it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from gradveil.core.knowledge import Mixture
from gradveil.core.paper import Paper
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch
from gradveil.defenses._mixing import Mixing, Pairs, as_matrix, draw_inside, draw_weights, too_few

PAPER = Paper("mixup: Beyond Empirical Risk Minimization", "Zhang et al.", 2018, "arXiv:1710.09412")


@dataclass(frozen=True, kw_only=True)
class Mixup(Mixing):
    """Mixes every picture and label with `k` - 1 others of the same client; no weight is above `bound`.

    `pairs`: who is mixed with whom and how much of each, `fresh` in every round or `fixed` by `seed` and the pictures.
    """

    pairs: Pairs = "fresh"  # once more, since a catalogue looks its type up in this module

    @property
    def title(self) -> str:
        return "mixup"

    def bind(self, scenario: Scenario) -> Mixup:
        if self.k > (there := scenario.private.images.shape[1]):
            raise too_few(self.title, self.k, there)
        return self

    def draw(self, data: Batch, rng: Generator) -> Mixture:
        count = len(data.images)
        if self.k > count:
            raise too_few(self.title, self.k, count)
        weights = draw_weights(count, self.k, self.bound, rng)
        return Mixture(as_matrix(draw_inside(count, self.k, rng), weights, count, data.images), flipped=False)

    def sources(self, data: Batch) -> Tensor:
        return data.images
