"""`local-dp` beside Flower's own `LocalDpMod`: the same clip, the same noise."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from flower_toys import context, reply_with, train_message
from flwr.app import Context, Message
from flwr.clientapp.mod.localdp_mod import LocalDpMod
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.defenses.local_dp import LocalDp
from gradveil.flower.arrays import tensors_of

UPDATE = {
    "conv": torch.randn(6, 3, 3, 3, generator=Seed(0).at(1).rng(), dtype=torch.float64),
    "bias": 1e-3 * torch.randn(10, generator=Seed(0).at(2).rng(), dtype=torch.float64),
}


def sent_by_flower(update: Mapping[str, Tensor], **options: float) -> dict[str, Tensor]:
    """What arrives of an update: weights that are zero before the training and minus the update after it."""
    before = {name: torch.zeros_like(u) for name, u in update.items()}

    def train(message: Message, context: Context) -> Message:
        return reply_with(message, {name: -u for name, u in update.items()})

    reply = LocalDpMod(**options)(train_message(before), context(), train)
    after = tensors_of(reply.content.array_records["arrays"])
    return {name: before[name] - after[name] for name in before}


@pytest.mark.parametrize("clip", [0.1, 1.0, 1e3])
def test_it_clips_as_flower_does(clip: float) -> None:
    theirs = sent_by_flower(UPDATE, clipping_norm=clip, sensitivity=0.0, epsilon=1.0, delta=1e-5)
    ours = LocalDp(clipping_norm=clip, sensitivity=0.0).update(UPDATE, Seed(0).rng())
    assert all(torch.allclose(ours[name], theirs[name], rtol=1e-12, atol=1e-15) for name in UPDATE)


@pytest.mark.parametrize(("sensitivity", "epsilon", "delta"), [(1.0, 1.0, 1e-5), (0.2, 8.0, 1e-3)])
def test_it_has_the_noise_of_flower(sensitivity: float, epsilon: float, delta: float) -> None:
    size, given = 200_000, {"clipping_norm": 1.0, "sensitivity": sensitivity, "epsilon": epsilon, "delta": delta}
    small = {"w": torch.full((size,), 1e-12, dtype=torch.float64)}  # Flower divides by the length
    np.random.seed(0)  # Flower's
    defense = LocalDp(**given)
    theirs, ours = sent_by_flower(small, **given)["w"], defense.update(small, Seed(0).rng())["w"]
    for noise in (theirs, ours):
        assert float(noise.std()) == pytest.approx(defense.deviation, rel=6 / math.sqrt(2 * size))
        assert abs(float(noise.mean())) < 6 * defense.deviation / math.sqrt(size)
