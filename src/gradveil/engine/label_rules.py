"""Rules that count the labels behind a gradient, and which of them to believe for the gradient at hand.

All rules are tried on batches of practice. Each client gets the counts of the rule that was right most often on the
batches of practice that look like it: about as much left unexplained by any counts, about as much missed in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from gradveil.engine.label_counts import Pushes, by_signs
from gradveil.engine.label_posterior import Posterior, most_expected
from gradveil.engine.label_practice import Gradients, Pictures, practice

TRUST = 1.0  # pictures' worth of trust in the mean features over all classes, against those of one class
ROWS, FEWEST, LEARNED, TRIED = 4000, 64, 400, 128  # batches of practice times classes; of practice
ALIKE = 32  # batches of practice that a client is compared with
EXPLAINED = 0.01  # share of the push that a fit may leave over and is as good as perfect: local steps leave as much
STRANGE = 2.0  # times longer or shorter than in any batch of practice: somebody changed its length


@dataclass(frozen=True)
class Practice:
    """Batches of practice: those to learn from, for each kind of pictures, and those on which rules are tried."""

    learned: Sequence[Gradients]
    tried: Gradients
    beliefs: Sequence[float]
    means: Tensor  # features, [class, feature]
    of_bias: bool  # whether the logits' gradient is that of a bias, so exact

    @classmethod
    def draw(cls, pictures: Sequence[Pictures], examples: int, along: Tensor | None, rng: Generator) -> Practice:
        """`along`: see `practice`."""
        share = min(1.0, ROWS / (pictures[0].answers.shape[1] * LEARNED))
        sizes = [max(FEWEST, round(share * number)) for number in (LEARNED, TRIED)]
        learned, tried = ([practice(some, examples, size, along, rng) for some in pictures] for size in sizes)
        means = pictures[-1].means(TRUST)
        return cls(learned, Gradients.join(tried), [some.belief for some in pictures], means, along is None)

    def of_length_one(self) -> Practice:
        learned = [some.of_length_one() for some in self.learned]
        return replace(self, learned=learned, tried=self.tried.of_length_one())

    def is_strange(self, received: Gradients) -> Tensor:
        """Which gradients are longer or shorter than those of any batch."""
        length, known = received.length, Gradients.join(self.learned).length
        return (length < known.amin() / STRANGE) | (length > known.amax() * STRANGE)


@dataclass(frozen=True)
class Rules:
    """What was learned for batches of one size. Without pushes nothing is assumed of the length of a gradient."""

    examples: int
    posteriors: Sequence[Posterior]
    pushes: Sequence[Pushes]
    of_bias: bool

    @classmethod
    def learn(cls, known: Practice, pushes: Sequence[Pushes], examples: int) -> Rules:
        each = zip(known.learned, known.beliefs, strict=True)
        return cls(examples, [Posterior.learn(some, known.means, examples, belief) for some, belief in each], pushes,
                   known.of_bias)  # fmt: skip

    def count(self, received: Gradients, tried: Gradients) -> Tensor:
        """How many examples of each class [client, class], by the rule that was best on the batches most alike."""
        assert tried.counts is not None
        (counts, looks), (tries, others) = self.apply(received), self.apply(tried)
        right = torch.minimum(tries, tried.counts).sum(-1)
        scale = others.std(0).clamp_min(1e-9)
        alike = torch.cdist(looks / scale, others / scale).topk(min(ALIKE, len(others)), 1, largest=False).indices
        best = right[:, alike].mean(-1).argmax(0)
        return counts[best, torch.arange(len(best), device=best.device)]

    def apply(self, gradients: Gradients) -> tuple[Tensor, Tensor]:
        """What each rule counts [rule, batch, class], and what the batches look like [batch, number]."""
        least, missed = self.prove(gradients), self.posteriors[-1].missed(gradients).unsqueeze(-1)
        counts = [
            *(most_expected(one.at_least(gradients), least, self.examples) for one in self.posteriors),
            by_signs(gradients.logits, self.examples),
            by_lowest_rows(gradients.weight, self.examples),
        ]
        if not self.pushes:
            return torch.stack(counts), missed
        explained, left = self.explain(gradients, least)
        return torch.stack([explained, *counts]), torch.cat([left.clamp_min(EXPLAINED).log().unsqueeze(-1), missed], -1)

    def prove(self, gradients: Gradients) -> Tensor:
        """Examples that are certain, [batch, class]: an entry of -x of the logits' gradient proves x of them."""
        push = self.examples * gradients.logits
        least = (push.neg() - 1e-3).ceil().clamp_min(0) if self.of_bias else (push < 0).to(push)
        possible = bool(self.pushes) & (least.sum(-1, keepdim=True) <= self.examples)  # only noise proves too many
        return least * possible

    def explain(self, gradients: Gradients, least: Tensor) -> tuple[Tensor, Tensor]:
        """The counts that explain the logits' gradient best, and the share that they leave over."""
        counts, left = [], []
        for push, certain in zip(self.examples * gradients.logits, least, strict=True):
            fits = [pushes.fit(push, certain, self.examples) for pushes in self.pushes]
            best = min(fits, key=lambda fit: float(fit[1]))
            counts.append(best[0])
            left.append(best[1])
        return torch.stack(counts), torch.stack(left)


def count_labels(received: Gradients, examples: int, known: Practice, pushes: Sequence[Pushes]) -> Tensor:
    """Counts [client, class]. A gradient whose length cannot be believed is read by its direction alone.

    Without pushes no length can be believed.
    """
    counts, strange = torch.zeros_like(received.logits), known.is_strange(received) | (not pushes)
    if not strange.all():
        rules = Rules.learn(known, pushes, examples)
        counts[~strange] = rules.count(received.take(~strange), known.tried)
    if strange.any():
        known = known.of_length_one()
        rules = Rules.learn(known, (), examples)
        counts[strange] = rules.count(received.take(strange).of_length_one(), known.tried)
    return counts


def by_lowest_rows(weight: Tensor, examples: int) -> Tensor:
    """GradInversion's rule (Yin et al., 2021, eq. 5): the classes whose rows have the lowest entries, once each.

    For batches without repeated labels and positive features; after all classes it begins again.
    """
    classes = weight.shape[1]
    order = weight.amin(-1).argsort(-1)
    places = torch.arange(examples, device=weight.device) % classes
    return F.one_hot(order[:, places], classes).sum(1).to(weight)
