"""Small cells whose outcome is written down: attack by model by batch by defense, four photographs, float64.

A change that moves a number moves a result of everybody who audits. Whoever means it writes the new number here, with
the date, and says so in the changelog. A number alone says little, so there are two controls: every attack has a cell
where it does recover an undefended easy picture, and recovers nothing from noise of the update's size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from torch import Tensor, nn

from gradveil.attacks import ATTACKS
from gradveil.audit.controls import blind
from gradveil.core.compute import Compute
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses import DEFENSES
from gradveil.metrics import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from

pytestmark = pytest.mark.more

WITHIN = 0.3  # dB
EXACT = 80.0  # dB: beyond it only rounding is measured
PICTURES, SIZE = 4, 16
DOUBLE = Compute(precision="float64")
FEDSGD = LocalTraining()
FEDAVG = LocalTraining(steps=2, rate=0.01, batch_size=1)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One attack with its options in one setting; `defense` is a name and its options."""

    attack: str
    options: dict[str, Any] = field(default_factory=dict)
    model: str = "tiny"
    batch: int = 1
    defense: tuple[str, dict[str, Any]] = ("none", {})
    adaptive: bool = False
    training: LocalTraining = FEDSGD

    @property
    def label(self) -> str:
        parts = [self.attack, self.model, f"b{self.batch}", self.defense[0]]
        parts += ["adaptive"] * self.adaptive + ["fedavg"] * (self.training.steps > 1)
        return "-".join(parts)


ADAM = {"steps": 120, "tv": 3e-2, "restarts": 1}
L1 = {"steps": 120, "tv": 3e-1, "restarts": 1}
LBFGS = {"steps": 80, "restarts": 1}
EASY = {
    "dlg": LBFGS,
    "lbfgs-cosine": LBFGS,
    "invertgrad": ADAM,
    "gradinversion": ADAM,
    "sgd-cosine": ADAM,
    "adam-l1": L1,
    "linear": {},
}
PRUNE, NOISE = ("prune", {"ratio": 0.5}), ("gaussian", {"scale": 1e-2})


def cell(attack: str, **setting: Any) -> Cell:
    return Cell(attack=attack, options=EASY[attack], **setting)


CELLS = {  # mean PSNR in dB, measured 2026-11-16
    cell.label: (cell, report)
    for cell, report in (
        (cell("dlg"), 26.86),
        (cell("dlg", batch=2), 17.49),
        (cell("dlg", defense=PRUNE, adaptive=True), 23.74),
        (cell("invertgrad"), 19.44),
        (cell("invertgrad", model="lenet"), 19.80),
        (cell("invertgrad", batch=2), 17.49),
        (cell("invertgrad", defense=PRUNE, adaptive=True), 17.58),
        (cell("invertgrad", batch=2, training=FEDAVG), 18.91),
        (cell("lbfgs-cosine"), 28.26),
        (cell("lbfgs-cosine", model="lenet"), 22.83),
        (cell("lbfgs-cosine", defense=NOISE), 26.53),
        (cell("adam-l1"), 17.56),
        (cell("adam-l1", defense=PRUNE, adaptive=True), 16.68),
        (cell("gradinversion"), 19.32),
        (cell("gradinversion", batch=2), 14.60),
        (cell("gradinversion", defense=NOISE), 20.12),
        (cell("sgd-cosine"), 18.62),
        (cell("linear", model="mlp"), 80.00),
        (cell("linear", model="mlp", batch=2), 80.00),
        (cell("linear", model="mlp", defense=NOISE), 19.21),
    )
}


def tiny(classes: int, mean: tuple[float, ...], std: tuple[float, ...]) -> nn.Module:
    """Two convolutions with sigmoids and wide weights: easy."""
    with weights_from(1):
        model = nn.Sequential(
            Normalize(mean, std),
            nn.Conv2d(3, 12, 3, stride=2, padding=1),
            nn.Sigmoid(),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(12 * SIZE * SIZE // 4, classes),
        )
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def scenario_of(cell: Cell) -> Scenario:
    data = photos(size=SIZE, limit=PICTURES)
    classes, mean, std = data.targets.shape[1], tuple(data.mean), tuple(data.std)
    if cell.model == "tiny":
        model = tiny(classes, mean, std)
    else:
        model = MODELS[cell.model](classes=classes, shape=data.shape, mean=mean, std=std)
    private = Batch(*(x.double().unflatten(0, (-1, cell.batch)) for x in (data.images, data.targets)))
    return Scenario(
        name="golden",
        model=model.double(),
        private=private,
        names=tuple(f"c{i}" for i in range(len(private.images))),
        training=cell.training,
        threat=ThreatModel(knows_defense=cell.adaptive),
    )


def decibels(cell: Cell, from_noise: bool = False, compute: Compute = DOUBLE) -> tuple[float, float]:
    """Mean PSNR of the reconstructions, and of each picture's own mean color: no blank guess is nearer."""
    name, options = cell.defense
    attack = ATTACKS[cell.attack](**cell.options)
    seen, truth = observe(scenario_of(cell), DEFENSES[name](**options), attack, Seed(0))
    seen = blind(seen, Seed(2)) if from_noise else seen
    got, pictures = attack.reconstruct(seen, Seed(1), compute), truth.private.images
    assert got.loss.isfinite().all()
    blank = pictures.mean((-2, -1), keepdim=True).expand_as(pictures)
    return _mean(align(got.images, pictures, got.found).images, pictures), _mean(blank, pictures)


def _mean(shown: Tensor, pictures: Tensor) -> float:
    return peak_signal_to_noise(shown, pictures).clamp_max(EXACT).mean().item()


EASIEST = {cell(attack, model="mlp" if attack == "linear" else "tiny").label for attack in EASY}


def test_every_attack_has_an_easy_cell() -> None:
    """Undefended single pictures, with the same options as in its other cells."""
    assert set(CELLS) >= EASIEST
    assert {cell.attack for cell, _ in CELLS.values()} == set(EASY)


@pytest.mark.parametrize("label", CELLS)
def test_the_number_written_down(label: str) -> None:
    cell, report = CELLS[label]
    got, blank = decibels(cell)
    assert got == pytest.approx(report, abs=WITHIN)
    if label in EASIEST:
        assert got > blank + 3


@pytest.mark.parametrize("label", [pytest.param(x, marks=() if x in EASIEST else pytest.mark.slow) for x in CELLS])
def test_from_noise_it_recovers_nothing(label: str) -> None:
    got, blank = decibels(CELLS[label][0], from_noise=True)
    assert got < blank + 1
