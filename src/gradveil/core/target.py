"""What a picture is to be answered with: one class or several, a share of each, numbers, or any of these per pixel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Generator, Tensor

from gradveil.core.seeds import uniform

SUMS = 1e-4  # what shares of classes may add up to beside 1
TargetKind = Literal["classes", "several", "numbers"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Of one picture. `shape` begins with the class: (10,) is a label, (3, 64, 64) a mask of three classes.

    kind: `classes` add up to 1 (one-hot or soft), `several` are each between 0 and 1, `numbers` are any.
    """

    shape: tuple[int, ...]
    kind: TargetKind = "classes"

    @property
    def is_label(self) -> bool:
        """Whether it is one class of several, which rules that read labels off a gradient take for granted."""
        return self.kind == "classes" and len(self.shape) == 1

    @property
    def has_classes(self) -> bool:
        """Whether pictures have classes in common, one each or several."""
        return self.kind != "numbers" and not self.is_dense

    @property
    def is_dense(self) -> bool:
        """Whether there is one for every pixel."""
        return len(self.shape) > 1

    def class_places(self, count: int) -> tuple[int, ...]:
        """The shape of so many targets that are stored as class numbers."""
        return (count, *self.shape[1:])

    def from_stored(self, stored: Tensor) -> Tensor:
        """Targets [example, *shape], from class numbers [example, ...] or from what they are already."""
        if stored.is_floating_point():
            return stored.float()
        return F.one_hot(stored.long(), self.shape[0]).movedim(-1, 1).float()

    def even(self, like: Tensor, *leading: int) -> Tensor:
        """What says nothing: every class alike, as likely as not, or 0."""
        value = {"classes": 1 / max(1, self.shape[0]), "several": 0.5, "numbers": 0.0}[self.kind]
        return like.new_full((*leading, *self.shape), value)

    def draw(self, rng: Generator, like: Tensor, *leading: int) -> Tensor:
        """A soft one at random."""
        return self.squash(uniform((*leading, *self.shape), rng, like))

    def squash(self, free: Tensor) -> Tensor:
        """From any numbers [..., *shape] to targets of this kind."""
        if self.kind == "classes":
            return free.softmax(-len(self.shape))
        return free.sigmoid() if self.kind == "several" else free

    def harden(self, free: Tensor) -> Tensor:
        """The same, decided: the likeliest class, or every class that is likelier than not."""
        if self.kind == "several":
            return (free > 0).to(free)
        if self.kind == "numbers":
            return free
        chosen = free.argmax(-len(self.shape))
        return F.one_hot(chosen, self.shape[0]).movedim(-1, -len(self.shape)).to(free)


def kind_of(targets: Tensor) -> TargetKind:
    """What a table of targets [example, class, ...] looks like.

    >>> import torch
    >>> kind_of(torch.tensor([[0.3, 0.7]])), kind_of(torch.tensor([[1.0, 1.0]])), kind_of(torch.tensor([[-2.0]]))
    ('classes', 'several', 'numbers')
    """
    inside = bool(((targets >= 0) & (targets <= 1)).all())
    if inside and targets.shape[1] > 1 and bool(((targets.sum(1) - 1).abs() < SUMS).all()):
        return "classes"
    return "several" if bool(((targets == 0) | (targets == 1)).all()) else "numbers"
