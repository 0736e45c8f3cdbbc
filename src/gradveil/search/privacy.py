"""The privacy score of a policy (ATS, Gao et al., section 4.2): the area under the GradSim curve on the
straight way from a random picture to what the client was fed. Small is good: the attacker learns the way late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.search.similarity import Products, Similarity
from gradveil.transforms.policy import Draw

Against = Literal["unaware", "adaptive"]


@runtime_checkable
class Transforms(Protocol):
    """What a score asks of a policy."""

    def apply(self, images: Tensor, draw: Draw) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class PrivacyScore:
    """How areas are taken and combined.

    `similarity`: cosine of the whole gradient (eq. 5), or the mean over tensors of their cosines. `rule`: the left sum
    over 0, 1/K, ... (eq. 11), or the trapezoid over K points from 0 to 1. `variance`: over pictures (eq. 9), or over
    the means of the classes. `scale`: mean and variance as they are (eq. 10), or each from 0 to 1 over the candidates.
    `augment`: pictures are cropped and flipped at random before the policy, by whoever draws them.
    """

    similarity: Literal["flat", "per-tensor"] = "flat"
    rule: Literal["left", "trapezoid"] = "left"
    points: int = 10
    variance: Literal["samples", "classes"] = "samples"
    alpha: float = 0.7
    scale: Literal["raw", "min-max"] = "raw"
    augment: bool = False

    def __post_init__(self) -> None:
        fewest = 2 if self.rule == "trapezoid" else 1
        if self.points < fewest:
            raise ConfigError(
                f"privacy score: points = {self.points} are too few for {self.rule}, take {fewest} or more"
            )
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"privacy score: alpha = {self.alpha} is not a share, take a number from 0 to 1")

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Where on the way the gradient is looked at; 1 is the target and costs nothing more."""
        steps = self.points - (self.rule == "trapezoid")
        return tuple(j / steps for j in range(steps))

    def curve(self, found: Products) -> Tensor:
        """Similarity at all points of the rule, the target among them where the rule asks for it: [image, point]."""
        found = found.with_target() if self.rule == "trapezoid" else found
        return found.flat() if self.similarity == "flat" else found.per_tensor()

    def area(self, curve: Tensor) -> Tensor:
        """[image, point] -> [image]."""
        if self.rule == "left":
            return curve.mean(-1)
        return torch.trapezoid(curve, dx=1 / (self.points - 1), dim=-1)


# The paper gives neither K nor alpha: K = 10 is ours, alpha = 0.7 that of the authors' code.
PRIVACY_SCORES = {
    "ats-paper": PrivacyScore(),
    "ats-code": PrivacyScore(
        similarity="per-tensor", rule="trapezoid", points=21, variance="classes", scale="min-max", augment=True
    ),
}


@torch.no_grad()
def gradsim(
    similarity: Similarity,
    policy: Transforms,
    images: Tensor,
    labels: Tensor,
    starts: Tensor,
    draw: Draw,
    *,
    at: Sequence[float],
    against: Against = "unaware",
) -> Products:
    """The curve of every picture at the coefficients `at`: take `flat()`, `per_tensor()` or, layer by layer,
    `by_tensor()` of the result."""
    points, target = approach(policy, images, starts, draw, at, against)
    return similarity(points, target, labels)


def approach(
    policy: Transforms, images: Tensor, starts: Tensor, draw: Draw, at: Sequence[float], against: Against
) -> tuple[Tensor, Tensor]:
    """What an attacker would feed on its way [image, point, ...], and what the client fed."""
    target = policy.apply(images, draw)
    if against == "unaware":
        return between(starts.to(target), target, at), target
    # who knows the policy and what it drew searches for the picture before it, and transforms every guess alike
    guesses = between(starts.to(images), images, at)
    points = policy.apply(guesses.flatten(0, 1), repeat_draw(draw, len(at)))
    return points.view_as(guesses), target


def between(start: Tensor, end: Tensor, at: Sequence[float]) -> Tensor:
    """(1 - i) start + i end: [image, point, ...]."""
    i = torch.tensor(at, dtype=end.dtype, device=end.device).view(-1, 1, 1, 1)
    return (1 - i) * start[:, None] + i * end[:, None]


def repeat_draw(draw: Draw, times: int) -> Draw:
    """The same draw for all points of a picture."""
    return Draw(draw.choice.repeat_interleave(times, 0), draw.signs.repeat_interleave(times, 0))


def areas(
    score: PrivacyScore,
    similarity: Similarity,
    policy: Transforms,
    images: Tensor,
    labels: Tensor,
    starts: Tensor,
    draw: Draw,
    against: Against = "unaware",
) -> Tensor:
    """The area of every picture [image], in float64 (eq. 6). `images` are as they enter the policy."""
    found = gradsim(similarity, policy, images, labels, starts, draw, at=score.coefficients, against=against)
    return score.area(score.curve(found))


def combine(score: PrivacyScore, areas: Tensor, classes: Tensor) -> Tensor:
    """alpha * mean + (1 - alpha) * variance of areas [policy, image] -> [policy] (eq. 10). Small is good.

    Min-max is over the policies given: such scores compare candidates of one search and nothing else.
    """
    values = areas.double()
    if score.variance == "classes":
        values = class_means(values, classes)
    mean, variance = values.mean(1), values.var(1, correction=0)
    if score.scale == "min-max":
        mean, variance = from_0_to_1(mean), from_0_to_1(variance)
    return score.alpha * mean + (1 - score.alpha) * variance


def class_means(areas: Tensor, classes: Tensor) -> Tensor:
    """[policy, image] -> [policy, class], of the classes that are there."""
    found, place = classes.to(areas.device).unique(return_inverse=True)
    sums = areas.new_zeros(len(areas), len(found)).index_add_(1, place, areas)
    return sums / place.bincount(minlength=len(found))


def from_0_to_1(values: Tensor) -> Tensor:
    """By the smallest and the largest; all 0 where they do not differ."""
    spread = values.max() - values.min()
    return (values - values.min()) / torch.where(spread > 0, spread, 1.0)
