"""What an attacker who knows a defense may use beside its surrogate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gradveil.core.types import Images


@dataclass(frozen=True)
class View:
    """One way in which a defense may have changed the pictures.

    `apply` takes pictures in [0, 1] with any leading axes, `[..., channel, height, width]`, and keeps their shape. It
    is differentiable, draws nothing, and runs under `torch.func` and inside a CUDA graph.
    """

    apply: Callable[[Tensor], Tensor]
    name: str


def chain_views(views: Sequence[View]) -> View:
    """One view after the other."""
    return View(partial(_one_by_one, tuple(views)), "; ".join(view.name for view in views))


def _one_by_one(views: tuple[View, ...], pictures: Tensor) -> Tensor:
    for view in views:
        pictures = view.apply(pictures)
    return pictures


@dataclass(frozen=True, eq=False)
class Mixture:
    """How much of each source went into each encoding: the client's own pictures first, then the public ones."""

    weights: Tensor  # [*client, encoding, source]
    flipped: bool  # whether pixels were flipped about mid-gray afterwards, nobody knows which
    fixed: bool = False  # whether every round has these weights

    def take(self, at: Tensor) -> Mixture:
        return replace(self, weights=self.weights[at])

    @classmethod
    def of_clients(cls, each: Sequence[Mixture]) -> Mixture:
        return replace(each[0], weights=torch.stack([one.weights for one in each]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Knowledge:
    """What an attacker has of a defense beside its surrogate. An empty one: it knows none, or there is nothing to know.

    A defense says what its design tells (`Defense.knowledge`); `observe` adds what the clients drew, as far as the
    threat model grants it.
    """

    views: tuple[View, ...] = ()  # what may have happened to the pictures, one for each draw that there could have been
    copies: int = 1  # pictures fed for each one of the client's
    transforms: tuple[str, ...] = ()  # what makes the copies, by their names in `gradveil.defenses.oasis`
    mixes: bool = False  # whether pictures are mixed with others
    decoders: tuple[str, ...] = ()  # names of the attacks that undo what it does to pictures
    mixture: Mixture | None = None  # what was mixed, weights [client, encoding, source]
    encodings: Images | None = None  # what the defense made of the pictures, where the threat model gives them away

    @property
    def offers(self) -> frozenset[str]:
        """What an attack may require of a defense (`Attack.requires`) that is there."""
        present = {"views": bool(self.views), "mixture": self.mixes}
        return frozenset(name for name, is_present in present.items() if is_present)

    def take(self, at: Tensor) -> Knowledge:
        """Of these clients alone."""
        return replace(
            self,
            mixture=None if self.mixture is None else self.mixture.take(at),
            encodings=None if self.encodings is None else self.encodings[at],
        )


NO_KNOWLEDGE = Knowledge()
