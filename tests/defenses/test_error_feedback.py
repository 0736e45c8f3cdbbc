"""Error feedback: nothing is lost, only late."""

from __future__ import annotations

import pytest
import torch

from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed
from gradveil.core.types import Update
from gradveil.defenses.error_feedback import ErrorFeedback
from gradveil.defenses.prune import Prune
from gradveil.defenses.sign import Sign
from gradveil.defenses.topk import TopK
from gradveil.defenses.uniform import Uniform


def update_of(round_: int) -> Update:
    """The same direction with some noise, as in training."""
    rng = torch.Generator().manual_seed(round_)
    return {"w": 1 + 0.3 * torch.randn(200, generator=rng, dtype=torch.float64)}


def played(defense: Defense, rounds: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sums over the rounds of what was sent, of the updates, and what is still owed."""
    feedback = ErrorFeedback(defense)
    owed = feedback.start(update_of(0))
    sent, meant = torch.zeros(200, dtype=torch.float64), torch.zeros(200, dtype=torch.float64)
    for round_ in range(rounds):
        report, owed = feedback.step(update_of(round_), owed, Seed(round_).rng())
        sent, meant = sent + report["w"], meant + update_of(round_)["w"]
    return sent, meant, owed["w"]


@pytest.mark.parametrize("defense", [TopK(keep=0.1), Prune(ratio=0.9), Sign(scaled=True), Uniform(bits=2)])
def test_what_was_sent_and_what_is_owed_is_the_sum_of_the_updates(defense: Defense) -> None:
    sent, meant, owed = played(defense, 30)
    assert torch.allclose(sent + owed, meant, rtol=1e-9)


@pytest.mark.parametrize("defense", [TopK(keep=0.1), Sign(scaled=True), Uniform(bits=2)])
def test_the_sum_of_what_is_sent_converges_to_the_sum_of_the_updates(defense: Defense) -> None:
    off = []
    for rounds in (10, 100, 400):
        sent, meant, _ = played(defense, rounds)
        off.append(((sent - meant).norm() / meant.norm()).item())
    assert off[2] < 0.3 * off[0]
    assert off[2] < 0.05


def test_without_the_memory_it_does_not() -> None:
    sent = sum(TopK(keep=0.1).update(update_of(round_), Seed(0).rng())["w"] for round_ in range(100))
    meant = sum(update_of(round_)["w"] for round_ in range(100))
    assert torch.as_tensor(sent - meant).norm() > 0.5 * torch.as_tensor(meant).norm()


def test_no_defense_owes_nothing_and_nothing_is_written_into() -> None:
    update, residual = update_of(1), update_of(2)
    before = update["w"].clone(), residual["w"].clone()
    sent, owed = ErrorFeedback(Defense()).step(update, residual, Seed(0).rng())
    assert torch.equal(sent["w"], before[0] + before[1])
    assert not owed["w"].any()
    assert torch.equal(update["w"], before[0])
    assert torch.equal(residual["w"], before[1])
