"""Batches whose labels the attacker knows: on them it finds out what a gradient says of its labels.

They are made of pictures as the last layer sees them. Public ones, if there are any; else blots of color, half of them
with labels at random (a model that does not know its classes) and half moved along the layer's own weights until they
are answered as some class (a model that does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from gradveil.core.seeds import normal

SPREAD = (4.0, 5.0)  # mean and standard deviation of the margin of moved pictures; a mistake where it is negative
FARTHEST, HALVINGS = 64.0, 30
BELIEF = 0.6  # in what moved pictures teach, since they are no pictures; 1 is full belief


@dataclass(frozen=True)
class Pictures:
    """What enters the last layer [picture, feature], the model's answers [picture, class], and the labels [picture].

    `belief` is by how much the slope of what is learned on them is multiplied.
    """

    features: Tensor
    answers: Tensor
    labels: Tensor
    belief: float = 1.0

    def means(self, trust: float) -> Tensor:
        """The mean features of each class [class, feature], `trust` pictures' worth of them those of all classes."""
        one_hot = F.one_hot(self.labels, self.answers.shape[1]).to(self.features)
        sums = one_hot.T @ self.features + trust * self.features.mean(0)
        return sums / (one_hot.sum(0).unsqueeze(-1) + trust)


@dataclass(frozen=True)
class Gradients:
    """Of the last layer, one for each batch: weight [batch, class, feature], logits [batch, class], counts if known."""

    weight: Tensor
    logits: Tensor
    counts: Tensor | None = None

    @property
    def length(self) -> Tensor:
        return torch.cat([self.weight.flatten(1), self.logits], 1).norm(dim=1)

    def take(self, at: slice | Tensor) -> Gradients:
        return Gradients(self.weight[at], self.logits[at], None if self.counts is None else self.counts[at])

    @classmethod
    def join(cls, parts: Sequence[Gradients]) -> Gradients:
        counts = [part.counts for part in parts if part.counts is not None]
        weight, logits = torch.cat([part.weight for part in parts]), torch.cat([part.logits for part in parts])
        return cls(weight, logits, torch.cat(counts) if counts else None)

    def of_length_one(self) -> Gradients:
        length = self.length.clamp_min(torch.finfo(self.weight.dtype).tiny).unsqueeze(-1)
        return Gradients(self.weight / length.unsqueeze(-1), self.logits / length, self.counts)


def practice(pictures: Pictures, examples: int, batches: int, along: Tensor | None, rng: Generator) -> Gradients:
    """The gradients of so many batches of pictures drawn at random.

    Those of the logits are read off the weight's `along` some features [feature], where there is no bias.
    """
    classes, like = pictures.answers.shape[1], pictures.answers
    drawn = torch.randint(len(like), (batches, examples), generator=rng).to(like.device)
    one_hot = F.one_hot(pictures.labels, classes).to(like)
    errors = (pictures.answers - one_hot)[drawn]
    weight = torch.einsum("nbk,nbf->nkf", errors, pictures.features[drawn]) / examples
    logits = errors.mean(1) if along is None else weight @ along.to(weight)
    return Gradients(weight, logits, one_hot[drawn].sum(1))


def move_to_classes(features: Tensor, weight: Tensor, bias: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
    """Features [picture, feature] moved until a class drawn at random has a margin drawn at random, and the classes.

    They stay above the least that was seen: features after ReLU are never negative.
    """
    labels = torch.randint(len(weight), (len(features),), generator=rng).to(features.device)
    wanted = SPREAD[0] + SPREAD[1] * normal((len(features),), rng, features)
    toward, least = (weight - weight.mean(0))[labels], features.amin()

    def move(by: Tensor) -> Tensor:
        return (features + by.unsqueeze(-1) * toward).clamp_min(least)

    low, high = torch.full_like(wanted, -FARTHEST), torch.full_like(wanted, FARTHEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        short = margin(move(middle) @ weight.T + bias, labels) < wanted
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return move((low + high) / 2), labels


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """How far the label's logit is above the highest of the others.

    >>> margin(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1]))
    tensor([1.])
    """
    own = labels.unsqueeze(-1)
    return logits.gather(1, own)[:, 0] - logits.scatter(1, own, -torch.inf).amax(1)
