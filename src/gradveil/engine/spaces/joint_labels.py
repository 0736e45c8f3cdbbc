"""Labels as part of what is optimized, as in Deep Leakage from Gradients (Zhu et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, normal
from gradveil.core.target import Target
from gradveil.core.types import Images, Labels, Latent
from gradveil.engine.spaces.space import BoundSpace, Space

LOGITS = "labels"  # their name in the latent


@dataclass(frozen=True)
class JointLabels:
    """A space of pictures, and beside it one number per example and class, or pixel of a mask, that starts normal.

    An attacker who was given the labels has nothing to search for: the space is then the one inside.
    """

    space: Space

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> BoundSpace:
        inside = self.space.bind(seen, restarts)
        if seen.labels is not None:
            return inside
        like = next(iter(seen.update.values()))
        return BoundJointLabels(inside, seen.examples, seen.target, like)


@dataclass(frozen=True)
class BoundJointLabels:
    inside: BoundSpace
    examples: int
    target: Target
    like: Tensor

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        rng = seed.at("labels", name, restart).rng()
        return {
            **self.inside.init(seed, name, restart),
            LOGITS: normal((self.examples, *self.target.shape), rng, self.like),
        }

    def labels(self, z: Latent) -> Labels:
        """As fed to the match: soft, so that they have a slope."""
        return self.target.squash(z[LOGITS])

    def reveal_labels(self, z: Latent) -> Labels:
        """As reported: the likeliest class, or every class that is likelier than not; numbers as they are."""
        return self.target.harden(z[LOGITS])

    def decode(self, z: Latent) -> Images:
        return self.inside.decode(_pictures(z))

    def reveal(self, z: Latent) -> Images:
        return self.inside.reveal(_pictures(z))

    def smooth(self, z: Latent) -> Images:
        return self.inside.smooth(_pictures(z))

    def constrain(self, z: Latent) -> Latent:
        return {**self.inside.constrain(_pictures(z)), LOGITS: z[LOGITS]}


def _pictures(z: Latent) -> Latent:
    return {name: x for name, x in z.items() if name != LOGITS}


def free(seen: Observation) -> Labels | None:
    """The labels if they are given; None leaves them to the search."""
    return seen.labels
