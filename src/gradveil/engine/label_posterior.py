"""How likely a batch holds at least one, two, three ... examples of each class, learned on batches of practice.

Numbers that grow with the examples of a class are read off the last layer's gradient; a proportional-odds model
(McCullagh, 1980) over them says P(n >= j). The counts reported are those of which most are expected to be right: the
likeliest (class, j) pairs. Where the gradient says nothing, that is the guess "every class alike".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.engine.label_practice import Gradients

SMALLEST = 1e-4  # of an example's pull: below, numbers count linearly, above by their logarithm
RIDGE, VALUES = 1e-4, 60
MISSED = 3  # its place in the evidence


@dataclass(frozen=True)
class Posterior:
    """The model, and what its numbers are measured in."""

    means: Tensor  # [class, feature]
    examples: int
    center: Tensor
    scale: Tensor
    slope: Tensor
    thresholds: Tensor  # [count]

    @classmethod
    def learn(cls, practice: Gradients, means: Tensor, examples: int, belief: float) -> Posterior:
        assert practice.counts is not None
        evidence = read_evidence(practice, means, examples).flatten(0, 1)
        center, scale = evidence.mean(0), evidence.std(0).clamp_min(1e-9)
        slope, thresholds = fit_odds(
            with_products(((evidence - center) / scale).clamp(-4, 4)), practice.counts.flatten()
        )
        return cls(means, examples, center, scale, belief * slope, thresholds)

    def at_least(self, gradients: Gradients) -> Tensor:
        """P(n >= 1), P(n >= 2), ... [batch, class, count]."""
        evidence = read_evidence(gradients, self.means, self.examples)
        pull = with_products(((evidence - self.center) / self.scale).clamp(-4, 4)) @ self.slope
        return (pull.unsqueeze(-1) - self.thresholds).sigmoid()

    def missed(self, gradients: Gradients) -> Tensor:
        """How much the examples miss in all, [batch], by its logarithm."""
        return read_evidence(gradients, self.means, self.examples)[:, 0, MISSED]


def most_expected(at_least: Tensor, least: Tensor, examples: int) -> Tensor:
    """The counts [batch, class] whose overlap with the true ones is expected to be largest; `least` are certain."""
    missing = max(0, examples - at_least.shape[-1])
    likely = F.pad(at_least, (0, missing))
    certain = torch.arange(1, likely.shape[-1] + 1, device=likely.device) <= least.unsqueeze(-1)
    best = likely.masked_fill(certain, 2.0).flatten(1).topk(examples, 1).indices // likely.shape[-1]
    return torch.zeros_like(least).scatter_add_(1, best, torch.ones_like(best, dtype=least.dtype))


def read_evidence(gradients: Gradients, means: Tensor, examples: int) -> Tensor:
    """What speaks for each class, [batch, class, number].

    A row of the gradient is a sum of features: an example of the class pulls it down, all others push it up. Taken
    apart by the mean features of the classes, the class's own share is what its examples miss.
    """
    weight = examples * gradients.weight
    shares = weight @ torch.linalg.pinv(means, rtol=1e-3)  # [batch, row, class]
    own = shares.diagonal(dim1=1, dim2=2)
    missed = own.clamp_max(0).sum(1, keepdim=True)
    down = weight.clamp_max(0).sum(-1)
    others = (shares - torch.diag_embed(own)).clamp_min(0).sum(2)
    sizes = own, examples * gradients.logits, weight.amin(-1), missed.expand_as(own), down, others
    least = 1e-6 * weight.abs().sum((1, 2)).unsqueeze(-1).clamp_min(1e-12)
    relative = (own / missed.clamp_max(-least)).clamp(-1, 1), down / weight.abs().sum(-1).clamp_min(least)
    return torch.stack([*map(by_logarithm, sizes), *relative], -1)


def by_logarithm(x: Tensor) -> Tensor:
    return x.sign() * (x.abs() / SMALLEST).log1p()


def with_products(numbers: Tensor) -> Tensor:
    """The numbers of the last axis, and the products of every two."""
    count = numbers.shape[-1]
    return torch.cat([numbers, *(numbers[..., [i]] * numbers[..., i:] for i in range(count))], -1)


def fit_odds(numbers: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Slope [number] and rising thresholds [count] of P(n >= j) = sigmoid(numbers @ slope - threshold_j)."""
    most = max(1, int(counts.max()))
    reached = (counts.unsqueeze(-1) > torch.arange(most, device=counts.device)).to(numbers)
    share = reached.mean(0).clamp(1e-6, 1 - 1e-6)
    slope = torch.zeros_like(numbers[0], requires_grad=True)
    thresholds = share.logit().neg().requires_grad_()
    optimizer = torch.optim.LBFGS([slope, thresholds], max_iter=VALUES, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = (numbers @ slope).unsqueeze(-1) - thresholds
        total = F.binary_cross_entropy_with_logits(logits, reached) + RIDGE * slope.square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    return slope.detach(), thresholds.detach().cummax(0).values
