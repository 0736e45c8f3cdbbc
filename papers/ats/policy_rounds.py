"""Random policies, and rounds of many of them at once: `Bench.observed` takes one client after the other, which is slow
for thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from victims import Bench

from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.search.per_sample import OnePicture
from gradveil.transforms import Policy
from gradveil.transforms.policy import Draw

AT_ONCE = 500  # gradients of single pictures


def drawn(count: int) -> list[Policy]:
    """Different policies of one to three operations."""
    rng, found = np.random.default_rng(0), {}
    while len(found) < count:
        text = "-".join(map(str, rng.integers(0, 50, rng.integers(1, 4))))
        policy = Policy.parse(text)
        found.setdefault(policy.canonical(), policy)
    return list(found.values())


def rounds_of(bench: Bench, policies: Sequence[Policy], count: int) -> tuple[Observation, Tensor]:
    """What `observed` gives for one-picture clients under every policy, joined, and the pictures as fed.

    The draws are those of `observed`, client by client; the pictures are transformed and the gradients taken together.
    """
    one, private = OnePicture.of(bench.model, bench.training, bench.compute), bench.clients(count)
    first, _ = bench.observed(Defense(), 1)
    images, labels = private.images[:, 0], private.labels[:, 0]
    names = [f"c{place:04d}" for place in range(count)]
    fed = torch.cat([policy.apply(images, drawn_by(policy, names)) for policy in policies])
    with bench.compute.active():
        update = gradients(one, fed, labels.repeat(len(policies), 1))
    seen = replace(
        first,
        update=update,
        names=tuple(f"{policy}/{name}" for policy in policies for name in names),
        labels=labels.repeat(len(policies), 1)[:, None],
    )
    return seen, fed


def drawn_by(policy: Policy, names: Sequence[str]) -> Draw:
    each = [policy.draw(1, Seed(0).at("client", name).rng()) for name in names]
    return Draw(*(torch.cat(parts) for parts in zip(*each, strict=True)))


def gradients(one: OnePicture, fed: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Of every picture by itself; on a GPU some hundred at once, on a CPU that would be slower."""
    if not fed.is_cuda:
        found = [one(picture, label) for picture, label in zip(fed, labels, strict=True)]
        return {name: torch.stack([update[name] for update in found]) for name in one.params}
    each = torch.func.vmap(one, randomness="different")
    parts = [each(*some) for some in zip(fed.split(AT_ONCE), labels.split(AT_ONCE), strict=True)]
    return {name: torch.cat([part[name] for part in parts]) for name in one.params}
