"""How many examples of each class a batch holds: whole numbers that explain the gradient of the logits best.

An example of class k pushes the logits by p - e_k, so a batch's gradient times its size is sum_k n_k (E[p | k] - e_k).
Which n >= 0 with sum n = examples comes nearest is a small integer least-squares problem: from two starts, single
exchanges as long as they help, and the better end is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Pushes:
    """What one example of each class is expected to do to the logits: `each` is [class, class], row by row."""

    each: Tensor

    @cached_property
    def products(self) -> Tensor:
        return self.each @ self.each.T

    @cached_property
    def inverse(self) -> Tensor:
        """From a push and the number of examples to the counts that explain both, whole or not."""
        return torch.linalg.pinv(torch.cat([self.each, torch.ones_like(self.each[:, :1])], 1).T, rtol=1e-6)

    def fit(self, push: Tensor, least: Tensor, examples: int) -> tuple[Tensor, Tensor]:
        """Counts of one client, [class], and the share of its push [class] that they leave unexplained.

        `least` are counts that are known to be there.
        """
        if least.sum() > examples:  # only noise can prove more than there are
            least = torch.zeros_like(least)
        starts = self.one_by_one(push, least, examples), self.round_counts(push, least, examples)
        ends = [self.exchange(start, push, least) for start in starts]
        left = torch.stack([(push - counts @ self.each).square().sum() for counts in ends])
        tiny = torch.finfo(push.dtype).tiny
        return ends[int(left.argmin())], left.min() / push.square().sum().clamp_min(tiny)

    def one_by_one(self, push: Tensor, least: Tensor, examples: int) -> Tensor:
        """Each example where it helps most."""
        counts, toward = least.clone(), self.each @ push
        for _ in range(examples - int(least.sum())):
            counts[(2 * (self.products @ counts - toward) + self.products.diagonal()).argmin()] += 1
        return counts

    def round_counts(self, push: Tensor, least: Tensor, examples: int) -> Tensor:
        """The least squares without whole numbers, then the nearest whole ones of the right sum."""
        ideal = (self.inverse @ torch.cat([push, push.new_tensor([examples])])).clamp(-examples, examples)
        counts = torch.maximum(ideal.round(), least)
        while (over := int(counts.sum()) - examples) > 0:
            counts[(ideal - counts).masked_fill(counts <= least, torch.inf).argmin()] -= 1
        for _ in range(-over):
            counts[(ideal - counts).argmax()] += 1
        return counts

    def exchange(self, counts: Tensor, push: Tensor, least: Tensor) -> Tensor:
        """One example moved from class to class as long as that helps."""
        counts, toward, alone = counts.clone(), self.each @ push, self.products.diagonal()
        for _ in range(4 * int(counts.sum())):
            spare = torch.nonzero(counts > least)[:, 0]
            slope = 2 * (self.products @ counts - toward)
            change = (slope + alone) - (slope - alone)[spare, None] - 2 * self.products[spare]
            if not len(spare) or not change.min() < -1e-9:
                break
            gives, takes = divmod(int(change.argmin()), len(counts))
            counts[spare[gives]] -= 1
            counts[takes] += 1
        return counts


def by_signs(pull: Tensor, examples: int) -> Tensor:
    """Counts of all clients, [client, class]: every negative entry once, then the lowest that remains.

    Needs neither the scale of the gradient nor what the model says. LLG's average push of one example is subtracted
    for every label found; it is the sum of the negative entries over the share of absent classes (an unsure model
    gives each present label back its part), of which LLG's factor 1 + 1/classes is the case of a single label.
    """
    classes = pull.shape[-1]
    absent = (pull >= 0).sum(-1, keepdim=True).clamp_min(1) / classes
    one = pull.clamp_max(0).sum(-1, keepdim=True) / absent / examples
    counts = torch.zeros_like(pull)
    for _ in range(examples):
        new = (pull < 0) & (counts == 0)
        remaining = pull - counts * one
        fresh_first = torch.where(new.any(-1, keepdim=True), remaining.masked_fill(~new, torch.inf), remaining)
        counts = counts + F.one_hot(fresh_first.argmin(-1), classes)
    return counts
