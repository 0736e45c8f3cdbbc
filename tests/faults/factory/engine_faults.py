"""Faults of a search: it goes the wrong way, or nowhere."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import torch

from factory.fault import fault, has
from factory.patch import Patch
from gradveil.engine import descent, inversion, lbfgs, optimizer  # noqa: F401  (patched by name)

OBJECTIVE, ADVANCE = "gradveil.engine.descent.Objective.__call__", "gradveil.engine.descent.Descent.advance"
SEARCH = has("search")
WHERE = ("everywhere", "defended", "adaptive", "audited")


def change_slope(patch: Patch, rng: Random, change: Any) -> None:
    """Change the gradient of every search."""
    patch.draw_scope(rng, *WHERE)

    def wrong(plain: Any, self: Any, z: Any) -> Any:
        total, match, grads = plain(self, z)
        return total, match, {name: change(g) for name, g in grads.items()}

    patch.around(OBJECTIVE, wrong)


@fault("engine", "run", "the gradient of the search is zero", SEARCH)
def gradient_zero(patch: Patch, rng: Random) -> None:
    change_slope(patch, rng, lambda g: 0 * g)


@fault("engine", "run", "the gradient of the search has the wrong sign", SEARCH)
def gradient_flipped(patch: Patch, rng: Random) -> None:
    change_slope(patch, rng, lambda g: -g)


@fault("engine", "run", "the gradient of the search is noise", SEARCH)
def gradient_noise(patch: Patch, rng: Random) -> None:
    stream = torch.Generator().manual_seed(rng.randrange(2**31))
    change_slope(patch, rng, lambda g: torch.randn(g.shape, generator=stream).to(g) * g.abs().mean())


@fault("engine", "run", "every trial goes by the gradient of the next trial", SEARCH)
def gradient_of_another_trial(patch: Patch, rng: Random) -> None:
    change_slope(patch, rng, lambda g: g.roll(1, 0))


@fault("engine", "run", "half of every picture gets no gradient", SEARCH)
def gradient_half_missing(patch: Patch, rng: Random) -> None:
    def half(g: torch.Tensor) -> torch.Tensor:
        g = g.clone()
        g[..., : g.shape[-1] // 2] = 0
        return g

    change_slope(patch, rng, half)


@fault("engine", "run", "the search stands still after some steps", SEARCH)
def frozen_after_some_steps(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)
    last = rng.choice((0, 1, 2, 5))

    def freeze(plain: Any, self: Any, carry: Any) -> Any:
        moved = plain(self, carry)
        if carry["step"] < last:
            return moved
        return {**moved, **{name: x for name, x in carry.items() if name.startswith(("z.", "best."))}}

    patch.around(ADVANCE, freeze)


@fault("engine", "run", "the loss that the search sees is constant", SEARCH)
def loss_constant(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def constant(plain: Any, self: Any, z: Any) -> Any:
        total, match, grads = plain(self, z)
        return 0 * total + 1, 0 * match + 1, grads

    patch.around(OBJECTIVE, constant)


@fault("engine", "run", "the optimizer's rate is zero", SEARCH)
def rate_zero(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def stay(plain: Any, self: Any, z: Any, *rest: Any) -> Any:
        return z, plain(self, z, *rest)[1]

    patch.around("gradveil.engine.optimizer.Adam.step", stay)
    patch.around("gradveil.engine.lbfgs.Lbfgs.step", stay)


@fault("engine", "run", "the search takes very few steps, whatever was asked for", SEARCH)
def few_steps(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)
    steps = rng.choice((1, 2, 3))

    def short(plain: Any, self: Any, *rest: Any) -> Any:
        return plain(replace(self, steps=steps), *rest)

    patch.around("gradveil.engine.descent.Descent.run", short)


@fault("engine", "run", "the optimizer forgets its state after every step", SEARCH)
def optimizer_forgets(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def forget(plain: Any, self: Any, z: Any, *rest: Any) -> Any:
        moved, _ = plain(self, z, *rest)
        return moved, self.init(moved)

    patch.around("gradveil.engine.optimizer.Adam.step", forget)
    patch.around("gradveil.engine.lbfgs.Lbfgs.step", forget)


@fault("engine", "run", "the search ends with numbers that are none, for some trials", SEARCH)
def not_a_number_for_some(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)
    every, first = rng.choice((1, 2, 3)), rng.choice((0, 1, 5, 20))
    calls = iter(range(10**9))

    def breaks(plain: Any, self: Any, z: Any) -> Any:
        total, match, grads = plain(self, z)
        if next(calls) % 50 >= first:
            total = total.clone()
            total[::every] = torch.nan
        return total, match, grads

    patch.around(OBJECTIVE, breaks)


@fault("engine", "run", "the search reports its start in the place of its best point", SEARCH)
def reports_the_start(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def start(plain: Any, self: Any, z: Any, *rest: Any) -> Any:
        end = plain(self, z, *rest)
        return {**end, **{f"best.{name}": x for name, x in self.objective.space.constrain(z).items()}}

    patch.around("gradveil.engine.descent.Descent.run", start)


@fault("engine", "run", "every client is given the reconstruction of another")
def reconstructions_in_the_wrong_order(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *WHERE)

    def shuffled(plain: Any, self: Any, seen: Any, *rest: Any, **more: Any) -> Any:
        got = plain(self, seen, *rest, **more)
        return replace(got, images=got.images.roll(1, 0))

    for place in ("engine.inversion.Inversion", "attacks.linear.FirstLinear", "attacks.rtf.RobbingTheFed"):
        patch.around(f"gradveil.{place}.reconstruct", shuffled)


@fault("engine", "run", "all random streams are the same")
def one_random_stream(patch: Patch, rng: Random) -> None:
    number = rng.randrange(2**31)
    patch.around("gradveil.core.seeds.Seed.number", lambda plain, self: number)
