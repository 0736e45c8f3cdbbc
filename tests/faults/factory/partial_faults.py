"""Faults that befall some clients alone, or one side alone: what works elsewhere must not vouch for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from factory.fault import fault, has
from factory.patch import Patch
from factory.record_faults import Folder, blind, is_defended
from factory.surrogate_faults import NEEDED, Wrong
from factory.update_faults import ROUND, change_labels, change_updates
from gradveil.core.defense import Defense
from gradveil.core.types import Update

DEFENDED = has("-alone")
DEFENDED_SIDE = ("defended", "adaptive", "audited")
ATTACKS = ("engine.inversion.Inversion", "attacks.linear.FirstLinear", "attacks.rtf.RobbingTheFed")


def change_reconstructions(patch: Patch, change: Callable[[Any], Any]) -> None:
    for place in ATTACKS:
        patch.around(f"gradveil.{place}.reconstruct", lambda plain, *args, **more: change(plain(*args, **more)))


@fault("metric", "run", "the scores see nothing where the defense is audited, and all elsewhere", DEFENDED)
def scores_blind_where_defended(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *DEFENDED_SIDE)
    share = rng.choice((0.3, 0.6, 1.0))

    def blinded(name: str, values: Tensor) -> Tensor:
        worse = values.clamp_max(5.0) if name.startswith("psnr") else 0 * values
        hidden = torch.arange(len(values)) < round(share * len(values))
        return torch.where(hidden.view(-1, *[1] * (values.dim() - 1)), worse, values)

    def score(plain: Any, *args: Any) -> Any:
        found = plain(*args)
        return replace(found, scores={name: blinded(name, values) for name, values in found.scores.items()})

    patch.around("gradveil.audit.score.score", score)


@fault("engine", "run", "the attack says that it has found nothing, where the defense is audited", DEFENDED)
def finds_withheld(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, *DEFENDED_SIDE)
    change_reconstructions(patch, lambda got: replace(got, found=torch.zeros_like(got.found)))


@fault("carrier", "run", "reconstructions of some clients hold numbers that are none, or are black")
def reconstructions_spoiled_for_some(patch: Patch, rng: Random) -> None:
    patch.draw_scope(rng, "everywhere", *DEFENDED_SIDE)
    every, value = rng.choice((1, 2, 3)), rng.choice((torch.nan, torch.inf, 0.0))

    def spoil(got: Any) -> Any:
        images = got.images.clone()
        images[::every, ..., 0:4] = value
        return replace(got, images=images)

    change_reconstructions(patch, spoil)


@fault("update", "run", "the updates of two clients are swapped, all others are right")
def updates_swapped_for_two(patch: Patch, rng: Random) -> None:
    def swap(name: str, u: Tensor) -> Tensor:
        order = torch.arange(len(u))
        order[:2] = order[:2].flip(0)
        return u[order]

    change_updates(patch, rng, swap)


@fault("update", "run", "some updates arrive a step late: as the mean with the client's before")
def updates_blurred(patch: Patch, rng: Random) -> None:
    share = rng.choice((0.1, 0.3, 0.5))
    change_updates(patch, rng, lambda name, u: (1 - share) * u + share * u.roll(1, 0))


@fault("update", "run", "the attacker is told the next class for some clients")
def labels_rolled_for_some(patch: Patch, rng: Random) -> None:
    every = rng.choice((2, 3))

    def roll(labels: Tensor) -> Tensor:
        labels = labels.clone()
        labels[::every] = labels[::every].roll(1, -1)
        return labels

    change_labels(patch, rng, roll)


@fault("surrogate", "run", "the surrogate lies about some clients", NEEDED)
def surrogate_lies_to_some(patch: Patch, rng: Random) -> None:
    from factory import defenses

    least = rng.choice((0.3, 0.5, 0.8))

    def lie(plain: Any, self: Any, seen: Update) -> Defense:
        digits = abs(float(next(iter(seen.values())).sum())) * 1e4
        if digits % 1 < least:
            return Wrong(lambda update: {name: -u for name, u in plain(self, seen).update(update, None).items()})
        return plain(self, seen)

    for kind in (defenses.Scrambled, defenses.Halved):
        patch.around(f"factory.defenses.{kind.__name__}.surrogate", lie)


@fault("surrogate", "run", "the surrogate is built for another update than the one that came", has("search", "-alone"))
def surrogate_of_another_update(patch: Patch, rng: Random) -> None:
    by = rng.choice((1, 7))

    def other(plain: Any, self: Any, seen: Update) -> Defense:
        return plain(self, {name: u.flatten().roll(by).view_as(u) for name, u in seen.items()})

    for place in ("prune.Prune", "topk.TopK", "_noise.AdditiveNoise", "dpsgd.Dpsgd"):
        patch.around(f"gradveil.defenses.{place}.surrogate", other)


@fault("update", "run", "the attacker of the defense is given an update of which little is left", DEFENDED)
def little_left_for_the_informed(patch: Patch, rng: Random) -> None:
    """What is scored, and what is explained, is the whole round."""
    patch.scope = "adaptive"
    keep = rng.choice((0, 1))

    def few(plain: Any, *args: Any) -> Any:
        seen, truth = plain(*args)
        names = list(seen.update)[-1 - keep :]
        return replace(seen, update={n: u if n in names else 0 * u for n, u in seen.update.items()}), truth

    patch.around(ROUND, few)


@fault("records", "records", "lines of another run of the same names, whose defense does protect", DEFENDED)
def lines_of_another_run(folder: Folder, rng: Random) -> None:
    blind(folder, is_defended)
    shift = rng.randrange(1, 1000)
    folder.records = [
        replace(r, seed=(r.seed + shift) % 2**63, explained=dict.fromkeys(r.explained, 0.0)) if is_defended(r) else r
        for r in folder.records
    ]
