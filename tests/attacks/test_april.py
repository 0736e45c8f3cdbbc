"""`april`: one picture of a vision transformer in closed form, through whatever its owner wrote around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from scenes import CLASSES, MEAN, STD, drawn, one_hot, perceptron, seen_in, smooth
from torch import Tensor, nn
from toys import Noise, audit

from gradveil.attacks.april import april
from gradveil.attacks.autoattack import autoattack
from gradveil.audit.audit import run_audit
from gradveil.audit.controls import blind
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.core.attack import Reconstruction
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.soteria import Soteria
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.start import weights_from
from gradveil.models.vit import vit

WIDE = (3, 16, 12)
FEDSGD = LocalTraining()
FEDAVG = LocalTraining(steps=5, rate=0.05)


class Own(nn.Module):
    """A transformer of the user's: inline normalization, swapped channels, one of several embeddings, torch's encoder.

    `kind` says how pictures become tokens and where the positions are.
    """

    def __init__(self, kind: str, token: bool = True) -> None:
        super().__init__()
        width, patches = 24, 12
        self.kind, self.token = kind, token
        strides = {"overlap": (6, 4, 1)}.get(kind, (4, 4, 0))
        self.look = nn.Linear(48, width) if kind == "unfold" else nn.Conv2d(3, width, *strides)
        self.extra = nn.Parameter(0.02 * torch.randn(width))
        if kind == "table":
            self.table = nn.Embedding(patches + token, width)
        elif kind == "grid":
            self.grid = nn.Parameter(0.02 * torch.randn(1, width, 4, 3))
        else:
            self.row_and_column = nn.Parameter(0.02 * torch.randn(patches + token, width))
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True)
        self.body, self.answer = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = (x.flip(1) - 0.4) / torch.tensor([0.2, 0.25, 0.3]).to(x).view(3, 1, 1)
        if self.kind == "unfold":
            tokens = self.look(F.unfold(x, 4, stride=4).transpose(1, 2))
        elif self.kind == "grid":
            tokens = (self.look(x) + self.grid).flatten(2).transpose(1, 2)
        else:
            tokens = self.look(x).flatten(2).transpose(1, 2)
        if self.token:  # at the end, where nobody expects it
            tokens = torch.cat([tokens, self.extra.expand(len(x), 1, -1)], 1)
        if self.kind == "table":
            tokens = tokens + self.table.weight
        elif self.kind != "grid":
            tokens = tokens + self.row_and_column
        return self.answer(self.body(tokens).mean(1))


def own(kind: str, token: bool = True) -> nn.Module:
    with weights_from(3):
        return Own(kind, token)


def small() -> nn.Module:
    return vit(width=48, heads=2, depth=2, classes=CLASSES, shape=WIDE, patch=4, mean=MEAN, std=STD)


def scenario_of(
    model: nn.Module, shape: tuple[int, int, int] = WIDE, examples: int = 1, training: LocalTraining = FEDSGD
) -> Scenario:
    private = Batch(drawn(3, examples, *shape, seed=5), one_hot(3, examples))
    like = next(model.parameters())
    return Scenario(
        name="patches", model=model, private=Batch(*(x.to(like) for x in private)), names=("a", "b", "c"),
        training=training, threat=ThreatModel(),
    )  # fmt: skip


def attack(scenario: Scenario) -> Reconstruction:
    return april().reconstruct(seen_in(scenario), Seed(0))


def quality(got: Reconstruction, scenario: Scenario) -> Tensor:
    return peak_signal_to_noise(got.images, scenario.private.images)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "vit": small,
    "unfold": lambda: own("unfold"),
    "table of positions": lambda: own("table"),
    "positions as a grid": lambda: own("grid", token=False),
    "overlapping patches": lambda: own("overlap"),
    "no token of the class": lambda: own("plain", token=False),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [FEDSGD, FEDAVG, replace(FEDAVG, momentum=0.9)])
def test_the_picture_is_exact(name: str, training: LocalTraining) -> None:
    scenario = scenario_of(MODELS[name](), training=training)
    got = attack(scenario)
    assert got.found.all()
    assert (quality(got, scenario) > 60).all()
    assert (got.loss < 1e-6).all()


def test_gray_pictures_and_a_head_of_zeros() -> None:
    """Many start a head at zero: the first step tells nothing, the following ones do."""
    shape = (1, 12, 20)
    model = vit(width=32, heads=2, depth=1, classes=CLASSES, shape=shape, patch=4)
    nn.init.zeros_(model.get_parameter("fc.weight"))
    scenario = scenario_of(model, shape, training=FEDAVG)
    assert (quality(attack(scenario), scenario) > 60).all()
    once = scenario_of(model, shape)
    assert not attack(once).found.any()


def test_labels_that_nobody_told_are_found_by_the_replay() -> None:
    scenario = scenario_of(own("plain"), training=FEDAVG)
    hidden = replace(scenario, threat=ThreatModel(knows_labels=False))
    got = attack(hidden)
    assert got.found.all()
    assert torch.equal(got.labels, scenario.private.labels)


def test_weight_decay_is_taken_off() -> None:
    scenario = scenario_of(small(), training=LocalTraining(weight_decay=1e-2))
    assert (quality(attack(scenario), scenario) > 60).all()


def test_a_defense_of_one_layer_hides_nothing() -> None:
    scenario = scenario_of(small().double())
    got = april().reconstruct(seen_in(scenario, Soteria(rate=0.5)), Seed(0))
    assert got.found.all()
    assert (quality(got, scenario) > 60).all()


def test_what_the_replay_does_not_confirm_is_not_found() -> None:
    """Noise, an update of nothing but noise, and slopes of the positions that were swapped."""
    scenario = scenario_of(small())
    seen = seen_in(scenario)
    swapped = dict(seen.update) | {"embed.places": seen.update["embed.places"].flip(2)}
    for wrong in (seen_in(scenario, Gaussian(scale=0.1)), blind(seen, Seed(1)), replace(seen, update=swapped)):
        got = april().reconstruct(wrong, Seed(0))
        assert not got.found.any()
        assert (got.images == 0.5).all()
        assert got.loss.isfinite().all()


@pytest.mark.parametrize("model", [smooth, perceptron])
def test_models_without_positions_are_left_out(model: Callable[[], nn.Module]) -> None:
    seen = seen_in(scenario_of(model(), (3, 8, 8)))
    for run in (april().check, lambda seen: april().reconstruct(seen, Seed(0))):
        with pytest.raises(NotApplicableError, match="no patch embedding"):
            run(seen)


def test_batches_are_left_out() -> None:
    seen = seen_in(scenario_of(small(), examples=2))
    with pytest.raises(NotApplicableError, match="alone"):
        april().check(seen)
    got = april().reconstruct(seen, Seed(0))
    assert not got.found.any()
    assert got.notes


def test_an_audit_says_that_all_pictures_leak(tmp_path: Path) -> None:
    with weights_from(2):
        model = vit(width=32, heads=2, depth=1, classes=4, shape=(3, 8, 8), patch=4)
    toy = audit({"april": april(), "search": Noise()}, {"none": Defense()}, clients=5, controls=True)
    run_audit(replace(toy, scenario=replace(toy.scenario, model=model), sequence=True), tmp_path / "run")
    (finding,) = judge(read_run(tmp_path / "run")).findings
    assert (finding.verdict, finding.tally.leaked) == ("leaks", 5)


def test_autoattack_ends_with_it() -> None:
    scenario = scenario_of(small())
    got = autoattack(steps=1).reconstruct(seen_in(scenario), Seed(0))
    assert (quality(got, scenario) > 60).all()
    assert got.backend == "closed form"  # no search was begun
