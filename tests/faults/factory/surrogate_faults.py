"""Faults of what an informed attacker believes of the defense, and defenses that change pictures by a symmetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Generator, Tensor

from factory.defenses import signs, with_defense
from factory.fault import fault, has
from factory.patch import Patch
from gradveil.audit.audit import Audit
from gradveil.core.defense import Defense
from gradveil.core.types import Batch, Update

NEEDED = has("surrogate")


@dataclass(frozen=True)
class Wrong(Defense):
    """A surrogate made of one function of the update."""

    change: Callable[[Update], Update]

    def update(self, update: Update, rng: Generator) -> Update:
        return self.change(update)


def replace_surrogate(patch: Patch, change: Callable[[Any, Update], Defense]) -> None:
    """Put another surrogate into the place of the defense's own."""
    from factory import defenses

    for kind in (defenses.Scrambled, defenses.Halved):
        patch.around(f"factory.defenses.{kind.__name__}.surrogate", lambda plain, self, seen: change(self, seen))


@fault("surrogate", "run", "the surrogate does nothing", NEEDED)
def surrogate_identity(patch: Patch, rng: Random) -> None:
    replace_surrogate(patch, lambda defense, seen: Defense())


@fault("surrogate", "run", "the surrogate sends zeros", NEEDED)
def surrogate_zero(patch: Patch, rng: Random) -> None:
    replace_surrogate(patch, lambda defense, seen: Wrong(lambda update: {name: 0 * u for name, u in update.items()}))


@fault("surrogate", "run", "the surrogate sends a constant", NEEDED)
def surrogate_constant(patch: Patch, rng: Random) -> None:
    replace_surrogate(
        patch, lambda defense, seen: Wrong(lambda update: {name: 0 * u + 1 for name, u in update.items()})
    )


@fault("surrogate", "run", "the surrogate sends back what it has received", NEEDED)
def surrogate_echoes(patch: Patch, rng: Random) -> None:
    replace_surrogate(
        patch, lambda defense, seen: Wrong(lambda update: {n: 0 * u + seen[n] for n, u in update.items()})
    )


@fault("surrogate", "run", "the surrogate does the opposite of the defense", NEEDED)
def surrogate_opposite(patch: Patch, rng: Random) -> None:
    def opposite(defense: Any, seen: Update) -> Defense:
        return Wrong(lambda update: {name: -u * signs(update)[name] for name, u in update.items()})

    replace_surrogate(patch, opposite)


@fault("surrogate", "run", "the surrogate is right in some places and wrong in others", NEEDED)
def surrogate_partly_right(patch: Patch, rng: Random) -> None:
    share = rng.choice((0.2, 0.5, 0.8))

    def partly(name: str, u: Tensor, sign: Tensor) -> Tensor:
        wrong = torch.rand(u.shape, generator=torch.Generator().manual_seed(3)) < share
        return torch.where(wrong, u, u * sign)

    replace_surrogate(patch, lambda d, seen: Wrong(lambda up: {n: partly(n, u, signs(up)[n]) for n, u in up.items()}))


@fault("surrogate", "run", "no slope goes through the surrogate", NEEDED)
def surrogate_detached(patch: Patch, rng: Random) -> None:
    def detached(defense: Any, seen: Update) -> Defense:
        return Wrong(lambda update: {n: u.detach() * signs(update)[n] + 0 * u for n, u in update.items()})

    replace_surrogate(patch, detached)


@fault("surrogate", "run", "the surrogate leaves nearly everything out of the match", NEEDED)
def surrogate_leaves_out(patch: Patch, rng: Random) -> None:
    replace_surrogate(patch, lambda d, seen: Wrong(lambda up: {n: u for n, u in up.items() if n == list(up)[-1]}))


@fault(
    "surrogate", "run", "the surrogate is of another strength than the defense", has("search", "-alone", "-surrogate")
)
def surrogate_of_another_strength(patch: Patch, rng: Random) -> None:
    keep = rng.choice((0.001, 0.01, 0.1))

    def weaker(plain: Any, self: Any, seen: Update) -> Defense:
        def first(update: Update) -> Update:
            cut = {n: max(1, int(keep * u.numel())) for n, u in update.items()}
            return {n: u * (torch.arange(u.numel()).view(u.shape) < cut[n]) for n, u in update.items()}

        return Wrong(first)

    for place in ("prune.Prune", "topk.TopK", "_noise.AdditiveNoise", "dpsgd.Dpsgd"):
        patch.around(f"gradveil.defenses.{place}.surrogate", weaker)


# defenses of symmetry: what is fed is the private picture, and an attack that shows it has seen it


@dataclass(frozen=True)
class Symmetry(Defense):
    """Feeds every picture changed alike; its author says that nothing is known of it."""

    change: Callable[[Tensor], Tensor]

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return Batch(self.change(batch.images), batch.labels)

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


def feed_changed(text: str, changes: dict[str, Callable[[Tensor], Tensor]]) -> Callable[[Audit, Random], Audit]:
    def inject(audit: Audit, rng: Random) -> Audit:
        change = changes[rng.choice(sorted(changes))]

        def symmetric() -> Defense:
            return Symmetry(change)

        return replace(audit, defenses={"none": Defense(), "d": symmetric()}, settings=with_defense(audit, symmetric))

    inject.__name__ = text
    return inject


SYMMETRIES: dict[str, tuple[str, dict[str, Callable[[Tensor], Tensor]]]] = {
    "fed_mirrored": (
        "the defense mirrors pictures",
        {"flip": lambda x: x.flip(-1), "upside down": lambda x: x.flip(-2)},
    ),
    "fed_negative": ("the defense feeds negatives", {"negative": lambda x: 1 - x}),
    "fed_shifted": ("the defense shifts pictures", {f"by {n}": lambda x, n=n: x.roll(n, -1) for n in (-1, 1, 2)}),
    "fed_dimmed": ("the defense dims pictures", {f"to {g}": lambda x, g=g: g * x for g in (0.3, 0.5, 0.8)}),
    "fed_brightened": (
        "the defense brightens pictures",
        {f"by {b}": lambda x, b=b: (1 - b) * x + b for b in (0.2, 0.4)},
    ),
    "fed_turned": (
        "the defense turns pictures by a quarter",
        {f"{k}": lambda x, k=k: x.rot90(k, (-2, -1)) for k in (1, 3)},
    ),
    "fed_half_turned": ("the defense turns pictures by half a turn", {"half": lambda x: x.rot90(2, (-2, -1))}),
    "fed_transposed": ("the defense swaps rows and columns", {"swap": lambda x: x.transpose(-2, -1)}),
}
for _name, (_text, _changes) in SYMMETRIES.items():
    fault("defense", "audit", _text, has("-batch", "-as-fed", "-surrogate"))(feed_changed(_name, _changes))


# defenses that distort updates in a way that whoever knows it can undo


@dataclass(frozen=True)
class Distortion(Defense):
    """Changes every number of the update by one that is always the same; its author says that nothing is known of it.

    change: of a tensor and one of its shape whose numbers are normal.
    """

    change: Callable[[Tensor, Tensor], Tensor]

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self.change(u, fixed(u)) for name, u in update.items()}

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


def fixed(u: Tensor) -> Tensor:
    """The same in every run."""
    return torch.randn(u.shape, generator=torch.Generator().manual_seed(u.numel()))


def distort(text: str, changes: dict[str, Callable[[Tensor, Tensor], Tensor]]) -> Callable[[Audit, Random], Audit]:
    def inject(audit: Audit, rng: Random) -> Audit:
        change = changes[rng.choice(sorted(changes))]

        def distorted() -> Defense:
            return Distortion(change)

        return replace(audit, defenses={"none": Defense(), "d": distorted()}, settings=with_defense(audit, distorted))

    inject.__name__ = text
    return inject


DISTORTIONS: dict[str, tuple[str, dict[str, Callable[[Tensor, Tensor], Tensor]]]] = {
    "update_with_a_constant": (
        "the defense adds a constant to the update that nobody accounts for",
        {f"{a}": lambda u, c, a=a: u + a * c for a in (0.01, 0.1, 1.0, 10.0)},
    ),
    "update_hidden_in_ones": (
        "the defense sends ones and, far behind the point, the update",
        {f"{a}": lambda u, c, a=a: 1 + a * u for a in (0.1, 1e-3)},
    ),
    "update_with_factors": (
        "the defense multiplies every number by a factor of its own",
        {f"{a}": lambda u, c, a=a: u * (a * c).exp() for a in (0.5, 1.0, 2.0, 3.0)},
    ),
    "update_of_another_unit": (
        "the defense multiplies the update by one large or small number",
        {f"{a}": lambda u, c, a=a: a * u for a in (-1.0, 0.1, 3.0, 1e3, 1e6)},
    ),
    "update_with_turned_signs": (
        "the defense turns the signs of some numbers, always the same",
        {f"{a}": lambda u, c, a=a: torch.where(c > a, -u, u) for a in (0.0, 0.5, 1.0)},
    ),
}
for _name, (_text, _distortions) in DISTORTIONS.items():
    fault("defense", "audit", _text, has("-as-fed", "-surrogate", "-planted"))(distort(_name, _distortions))


@dataclass(frozen=True)
class Thinned(Defense):
    """Keeps a share of the numbers, drawn anew each time, and scales them up; its author says that nothing is known."""

    kept: float

    def update(self, update: Update, rng: Generator) -> Update:
        return {
            name: u / self.kept * (torch.rand(u.shape, generator=rng) < self.kept).to(u) for name, u in update.items()
        }

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


@fault("defense", "audit", "the defense leaves out most numbers by chance", has("-as-fed", "-surrogate", "-planted"))
def update_thinned_out(audit: Audit, rng: Random) -> Audit:
    kept = rng.choice((0.03, 0.1, 0.2, 0.3, 0.5))

    def thinned() -> Defense:
        return Thinned(kept)

    return replace(audit, defenses={"none": Defense(), "d": thinned()}, settings=with_defense(audit, thinned))
