"""Linear layers known by outer products: the same slopes, taken where they tell the whole gradient and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scenes import drawn, scene, seen_in
from torch import Tensor, nn

from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.defenses import DEFENSES
from gradveil.engine.backend import choose
from gradveil.engine.distance import L2, Cosine
from gradveil.engine.matcher import Loop, OneTrial, Vmap
from gradveil.models import MODELS

THREE = LocalTraining(steps=3, rate=0.05)
HIDDEN = "hidden.weight"


class Wide(nn.Module):
    """A linear layer worth telling by outer products; `use` says what else is done with its weights."""

    def __init__(self, use: str = "once") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.out, self.use = nn.Linear(192, 160), nn.Linear(160, 5), use
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.use == "rows":
            return self.out(self.hidden(x.unflatten(0, (-1, 1))).sigmoid().sum(1))
        seen = self.hidden(x).sigmoid()
        if self.use == "twice":
            seen = seen + self.hidden(x.square()).sigmoid()
        if self.use == "elsewhere":
            seen = seen + F.linear(x, self.hidden.weight.square()).sigmoid()
        return self.out(seen)


def round_of(model: nn.Module, training: LocalTraining = THREE, defense: Defense | None = None) -> Observation:
    threat = ThreatModel(knows_defense=defense is not None)
    return seen_in(scene(model, 2, 4, training=training, threat=threat), defense or Defense())


def close(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> bool:
    return all((a - b).norm() <= 1e-11 * b.norm() for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("training", [THREE, replace(THREE, batch_size=3), replace(THREE, steps=2, rate=1.0)])
@pytest.mark.parametrize("matcher", [Loop, Vmap])
def test_the_slopes_are_the_same(training: LocalTraining, matcher: Any) -> None:
    model = MODELS["lenet5"](classes=5, shape=(3, 8, 8)).double()
    one, fed = OneTrial.of(round_of(model, training), L2()), drawn(2, 4, 3, 8, 8, seed=3)
    report, labels = one.by_outer_products(), drawn(2, 4, 5, seed=5).softmax(-1)
    assert len(report.outer) == 1, "the first linear layer, and not the small one after it"
    assert close(matcher(report)(fed), Loop(one)(fed))
    assert close(matcher(report).joint(fed, labels), Loop(one).joint(fed, labels))


@pytest.mark.parametrize("name", ["uniform", "topk", "sign", "fedcdp", "soteria", "prune"])
def test_known_defenses_go_along(name: str) -> None:
    one = OneTrial.of(round_of(Wide(), defense=DEFENSES[name]()), Cosine())
    fed = drawn(2, 4, 3, 8, 8, seed=3)
    assert close(Vmap(one.by_outer_products())(fed), Loop(one)(fed))


@pytest.mark.parametrize("use", ["rows", "twice", "elsewhere"])
def test_what_outer_products_of_pictures_do_not_tell_is_moved_as_ever(use: str) -> None:
    seen, fed = round_of(Wide(use)), drawn(2, 4, 3, 8, 8, seed=3)
    one = OneTrial.of(seen, L2())
    assert one.by_outer_products().outer == ()
    assert close(choose(seen, L2(), "vmap").matcher(seen, L2())(fed), Loop(one)(fed))


def test_a_layer_without_a_gradient_was_not_tried() -> None:
    """Behind a head of zeros nothing tells whether a layer is used twice, and after a step it has a gradient."""
    model = Wide("twice")
    nn.init.zeros_(model.out.weight)
    seen, fed = round_of(model), drawn(2, 4, 3, 8, 8, seed=3)
    one = OneTrial.of(seen, L2())
    assert one.by_outer_products().outer == ()
    assert close(choose(seen, L2(), "vmap").matcher(seen, L2())(fed), Loop(one)(fed))


@pytest.mark.parametrize(
    "training",
    [replace(THREE, momentum=0.9), replace(THREE, weight_decay=0.1), LocalTraining(), replace(THREE, steps=20)],
)
def test_trainings_that_do_not_gain_or_are_no_sums(training: LocalTraining) -> None:
    assert OneTrial.of(round_of(Wide(), training), L2()).by_outer_products().outer == ()


def test_vmap_takes_them_and_loop_stays_the_reference() -> None:
    seen = round_of(Wide())
    vmap, loop = (choose(seen, L2(), name).matcher(seen, L2()) for name in ("vmap", "loop"))
    assert isinstance(vmap, Vmap)
    assert isinstance(loop, Loop)
    assert (vmap.one.outer, loop.one.outer) == ((HIDDEN,), ())
