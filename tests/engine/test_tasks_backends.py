"""Back ends on masks, numbers and losses of the client's own: equal where they can run, and a note where not."""

from __future__ import annotations

import pytest
import torch
from scenes import drawn
from tasks import CLASSES, SIDE, loss_called, namespace, one_hot_masks, small_unet
from torch import Tensor, nn

from gradveil.core.defense import Defense
from gradveil.core.local_training import LocalTraining
from gradveil.core.observation import Observation
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_agreed
from gradveil.core.target import TargetKind
from gradveil.core.types import Batch
from gradveil.defenses.prune import Prune
from gradveil.engine.backend import choose
from gradveil.engine.distance import L2, Cosine
from gradveil.engine.matcher import Loop, OneTrial, Vmap
from gradveil.models.start import weights_from

NO_DEFENSE = Defense()


def flat(outputs: int) -> nn.Module:
    with weights_from(0):
        return namespace()["Flat"](outputs).double()  # type: ignore[operator]


def seen_of(
    model: nn.Module, labels: Tensor, loss: str, kind: TargetKind, defense: Defense = NO_DEFENSE, **training
) -> Observation:
    """Two clients with these targets [client, example, ...]."""
    images = drawn(*labels.shape[:2], 3, SIDE, SIDE, seed=1)
    chosen = {"loss": loss_called(loss)} if loss else {}
    scenario = Scenario(
        name="tasks",
        model=model,
        private=Batch(images, labels),
        names=("a", "b"),
        training=LocalTraining(**chosen, **training),
        threat=ThreatModel(knows_defense=not defense.is_none),
        target_kind=kind,
    )
    return observe_agreed(scenario, defense, Seed())[0]


def cases() -> dict[str, Observation]:
    masks, numbers = one_hot_masks(2, 3, seed=2), 3 * drawn(2, 3, 2, seed=3) - 1
    steps = {"steps": 3, "rate": 0.1}
    return {
        "dice": seen_of(small_unet(), masks, "dice_ce", "classes"),
        "dice, three steps": seen_of(small_unet(), masks, "dice_ce", "classes", **steps),
        "dice, adam": seen_of(small_unet(), masks, "dice_ce", "classes", optimizer="adam", **steps),
        "dice, prune": seen_of(small_unet(), masks, "dice_ce", "classes", Prune(ratio=0.5)),
        "masks": seen_of(small_unet(), masks, "", "classes"),
        "numbers": seen_of(flat(2), numbers, "mse", "numbers"),
        "numbers, three steps": seen_of(flat(2), numbers, "mse", "numbers", **steps),
    }


@pytest.mark.parametrize("name", list(cases()))
def test_loop_and_vmap_agree(name: str) -> None:
    seen = cases()[name]
    fed = drawn(2, 3, 3, SIDE, SIDE, seed=4)
    one = OneTrial.of(seen, Cosine())
    for got, expected in zip(Vmap(one.by_outer_products())(fed), Loop(one)(fed), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", ["dice", "masks", "numbers"])
def test_sweep_says_why_it_hands_on(name: str) -> None:
    chosen = choose(cases()[name], L2(), "auto")
    reason = "here there is one for every pixel" if name == "masks" else "this one is the client's own"
    assert chosen.name == "vmap"
    assert chosen.fell_back
    assert chosen.notes[0].startswith("sweep cannot run this: ")
    assert reason in chosen.notes[0]


def test_a_loss_that_looks_inside_runs_in_a_loop() -> None:
    seen = seen_of(flat(2), drawn(2, 1, 2, seed=3), "looks_inside", "numbers")
    chosen = choose(seen, L2(), "auto")
    assert chosen.name == "loop"
    assert any(note.startswith("vmap cannot run this: ") for note in chosen.notes)


def test_a_slope_by_the_mask_is_that_of_finite_differences() -> None:
    seen = cases()["dice"]
    one, fed = OneTrial.of(seen, L2()), drawn(3, 3, SIDE, SIDE, seed=4)
    update = {name: u[0] for name, u in seen.update.items()}
    soft = (4 * drawn(3, CLASSES, SIDE, SIDE, seed=5)).softmax(1)
    _, _, slope = one.value_and_slopes(True, fed, soft, update)
    toward, step = torch.randn(soft.shape, generator=torch.Generator().manual_seed(0), dtype=soft.dtype), 1e-6
    ahead, behind = (one(fed, soft + sign * step * toward, update) for sign in (1, -1))
    torch.testing.assert_close((slope * toward).sum(), (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-9)


def test_a_right_picture_with_its_mask_explains_the_update() -> None:
    seen = cases()["dice, three steps"]
    assert seen.labels is not None
    truth = drawn(2, 3, 3, SIDE, SIDE, seed=1)
    right, _ = Loop(OneTrial.of(seen, Cosine()))(truth)
    assert bool((right < 1e-10).all())
