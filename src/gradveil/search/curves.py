"""Similarity of gradients on the way to a picture: in a straight line, as the score assumes, and as an attack goes
(ATS, figures 3, 4 and 17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.core.client import parameters_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.interval import mean_interval
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed, uniform
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine.inversion import Inversion
from gradveil.engine.snapshots import trace_search
from gradveil.search.privacy import gradsim
from gradveil.search.similarity import Products, Similarity
from gradveil.transforms.policy import Policy

POINTS = 21
MOMENTS = 13


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Whose gradients are compared, and the attack that is watched. Pictures [n, c, h, w], labels [n, class]."""

    model: nn.Module
    pictures: Batch
    attack: Inversion
    compute: Compute = Compute()
    seed: Seed

    def straight(self, policy: Policy) -> Products:
        """From noise to the picture as fed, in a straight line."""
        images, labels = (x.to(self.compute.device, self.compute.dtype) for x in self.pictures)
        starts = uniform(images.shape, self.seed.at("starts").rng(), images)
        draw = policy.draw(len(images), self.seed.at("draw").rng())
        at = torch.linspace(0, 1, POINTS).tolist()
        return gradsim(self.similarity, policy, images, labels, starts, draw, at=at)

    def attacked(self, policy: Policy) -> tuple[list[int], Products]:
        """Along a real attack, and after how many steps."""
        images, labels = (x[:, None].to(self.compute.device, self.compute.dtype) for x in self.pictures)
        names = tuple(f"c{place:04d}" for place in range(len(images)))
        scenario = Scenario(name="curves", model=self.model, private=Batch(images, labels), names=names)
        seen, truth = observe(scenario, _as_defense(policy), self.attack, self.seed.at("round"))
        at = moments(self.attack.steps)
        way = trace_search(self.attack, seen, self.seed.at("attack"), self.compute, at=at)[:, :, 0]
        return at, self.similarity(way, truth.fed.images[:, 0], truth.fed.labels[:, 0])

    @property
    def similarity(self) -> Similarity:
        return Similarity(self.model, LocalTraining(), self.compute)

    @property
    def layers(self) -> list[str]:
        """Two shallow and two deep weights: the first two and the last two that are no vectors."""
        weights = [name for name, x in parameters_of(self.model).items() if x.dim() > 1]
        return list(dict.fromkeys([*weights[:2], *weights[-2:]]))


def moments(steps: int) -> list[int]:
    """Steps at which an attack is looked at: close together where it moves fast.

    >>> moments(100)
    [0, 1, 3, 6, 11, 17, 25, 34, 44, 56, 69, 84, 100]
    """
    return sorted({round(steps * (place / (MOMENTS - 1)) ** 2) for place in range(MOMENTS)})


def curves(watch: Watch, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Of each policy, by its label: both ways with intervals over the pictures, and layer by layer along the attack."""
    found: dict[str, Any] = {}
    names = list(parameters_of(watch.model))
    for label, policy in policies.items():
        steps, along = watch.attacked(policy)
        by_tensor = along.by_tensor()
        found[label] = {
            "policy": str(policy),
            "straight": _with_doubt(torch.linspace(0, 1, POINTS).tolist(), watch.straight(policy).flat()),
            "attack": _with_doubt(steps, along.flat()),
            "layers": {name: by_tensor[..., names.index(name)].mean(0).tolist() for name in watch.layers},
            "steps": steps,
        }
    return found


def _with_doubt(at: Sequence[float], similarity: Tensor) -> list[list[float | None]]:
    """[place, mean, low, high] of similarity [picture, place]."""
    rows: list[list[float | None]] = []
    for place, values in zip(at, similarity.cpu().T.tolist(), strict=True):
        between = mean_interval(values)
        low, high = (between.low, between.high) if between else (None, None)
        rows.append([place, sum(values) / len(values), low, high])
    return rows


def _as_defense(policy: Policy) -> Defense:
    from gradveil.defenses.ats import Ats  # which reads policies

    return Ats(policy=str(policy), library=policy.library.spec)
