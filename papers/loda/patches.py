"""A network that learns in seconds (Coates, Lee and Ng, AISTATS 2011): patches of public pictures as filters, a ridge.

Filters are whitened patches of public pictures, so only the last layer has ever seen what is trained on. A patch is
freed of its mean and its contrast: what it answers to is detail.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.seeds import Seed

SIDE, STRIDE, FILTERS, QUIET, DRAWN = 6, 2, 300, 0.5, 20_000
RIDGES = (10.0, 100.0, 1000.0)
AT_ONCE = 100


@dataclass(frozen=True)
class Patches:
    """Filters [patch, filter] and what whitens."""

    center: Tensor
    whiten: Tensor
    filters: Tensor

    @classmethod
    def of(cls, public: Tensor, seed: int) -> Patches:
        rng = Seed(seed).at("patches").rng()
        every = plain(public[:500]).flatten(0, 1)
        drawn = every[torch.randperm(len(every), generator=rng)[:DRAWN]]
        center = drawn.mean(0)
        sizes, axes = torch.linalg.eigh((drawn - center).T.cov())
        whiten = axes @ torch.diag((sizes + 0.1).rsqrt()) @ axes.T
        chosen = F.normalize((drawn[:FILTERS] - center) @ whiten)
        return cls(center, whiten, chosen.T)

    def features(self, pictures: Tensor) -> Tensor:
        """[picture, feature]: both signs of every filter, added up in the four quarters."""
        return torch.cat([self._features(part) for part in pictures.split(AT_ONCE)])

    def _features(self, pictures: Tensor) -> Tensor:
        answers = (plain(pictures) - self.center) @ self.whiten @ self.filters
        both = torch.cat([F.relu(answers - QUIET), F.relu(-answers - QUIET)], 2)
        side = int(both.shape[1] ** 0.5)
        return F.adaptive_avg_pool2d(both.transpose(1, 2).unflatten(2, (side, side)), 2).flatten(1)


def plain(pictures: Tensor) -> Tensor:
    """Every patch without its mean and contrast: [picture, place, value]."""
    found = F.unfold(pictures.contiguous(), SIDE, stride=STRIDE).transpose(1, 2)
    return (found - found.mean(2, keepdim=True)) / (found.var(2, keepdim=True) + 1e-3).sqrt()


def known(patches: Patches, images: Tensor, labels: Tensor, test: Tensor, wanted: Tensor) -> float:
    """The share of test pictures whose class is found by who was trained on these; each is mirrored, too."""
    fed, asked = (patches.features(x) for x in (torch.cat([images, images.flip(3)]), test))
    center, spread = fed.mean(0), fed.std(0) + 1e-6
    fed, asked, labels = (fed - center) / spread, (asked - center) / spread, torch.cat([labels, labels])
    apart = torch.arange(len(fed)) % len(images) % 5 == 0  # a fifth, mirrored ones with them, to choose the ridge by
    scores = [right(solved(fed[~apart], labels[~apart], r), fed[apart], labels[apart]) for r in RIDGES]
    return right(solved(fed, labels, RIDGES[scores.index(max(scores))]), asked, wanted)


def solved(features: Tensor, labels: Tensor, ridge: float) -> Tensor:
    gram = features.T @ features + ridge * torch.eye(features.shape[1])
    return torch.linalg.solve(gram, features.T @ (labels - labels.mean()))


def right(weights: Tensor, features: Tensor, labels: Tensor) -> float:
    return ((features @ weights).argmax(1) == labels.argmax(1)).float().mean().item()
