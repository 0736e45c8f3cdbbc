"""Numbers that are no pictures: every attack of the table fails the trial, or is right. Never a score for nonsense."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scenes import CLASSES, MEAN, STD, drawn, one_hot, scene
from test_contracts import ATTACK_ROWS, NO_DEFENSE, brief
from torch import Generator, nn

from gradveil.attacks import ATTACKS
from gradveil.audit.audit import Audit, run_audit
from gradveil.core.check import options_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.types import Update
from gradveil.defenses.stack import Stack
from gradveil.engine.distance import L1
from gradveil.experiment import journal
from gradveil.experiment.record import Record
from gradveil.metrics import METRICS
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from

PLANTING = {name for name in ATTACKS if "malicious" in ATTACKS[name]().requires}
VARIANTS = ("-ats", "-code", "-paper")  # of a method that has a row of its own: slow where a whole search is needed
# what this perceptron gives nothing to work on, and what was trained for one model alone
OF_OTHER_MODELS = {"april", "april-search", "spear", "cocktail-party", "learned-inverter"}
HERE = [name for name in ATTACKS if name not in OF_OTHER_MODELS]
each_attack = pytest.mark.parametrize("name", HERE)
each_method = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name.endswith(VARIANTS) else ()) for name in HERE]
)


@dataclass(frozen=True, kw_only=True)
class Spoiled(Defense):
    """Multiplies the update, and puts what is no number into one of its entries."""

    times: float = 1.0
    entry: float | None = None

    def update(self, update: Update, rng: Generator) -> Update:
        spoiled = {name: self.times * u for name, u in update.items()}
        if self.entry is not None:
            first = next(iter(spoiled))
            spoiled[first] = spoiled[first].flatten().index_fill(0, torch.tensor(3), self.entry).view_as(spoiled[first])
        return spoiled

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


def tiny(shape: tuple[int, int, int], single: bool = False) -> nn.Module:
    """A perceptron for pictures of any shape, which nearly all attacks can work on, or a single layer."""
    numbers, channels = shape[0] * shape[1] * shape[2], shape[0]
    with weights_from(5):
        deep = [nn.Linear(numbers, 32), nn.Sigmoid(), nn.Linear(32, CLASSES)]
        layers = [nn.Linear(numbers, CLASSES)] if single else deep
        return nn.Sequential(Normalize(MEAN[:channels], STD[:channels]), nn.Flatten(), *layers)


def records_of(
    name: str, folder: Path, shape: tuple[int, int, int] = (3, 8, 8), defense: Defense | None = None, **changes: Any
) -> list[Record]:
    """Two clients in float32, from the audit to its journal."""
    examples, options = changes.pop("examples", 1), changes.pop("options", brief(name, 5))
    threat = ThreatModel(may_plant=True)
    model = tiny(shape, single=ATTACK_ROWS[name].single)
    victims: Scenario = scene(model, 2, examples, shape=shape, labels=one_hot(2, examples), threat=threat)
    victims = replace(victims, private=type(victims.private)(*(x.float() for x in victims.private)))
    attack, known = ATTACKS[name](**options), ATTACK_ROWS[name].defense
    must_know = known is not NO_DEFENSE
    parts = tuple(part for part in (known, defense) if part is not None)
    together = Stack(parts) if must_know else defense or Defense()
    audit = Audit(
        scenario=victims,
        defenses={"spoiled": together},
        attacks={name: attack},
        metrics=(METRICS["psnr"](),),
        gallery=drawn(6, *shape, seed=3).float(),
        controls=False,
        lineup=0,
    )
    run_audit(audit, folder, Compute())
    attacker = "adaptive" if must_know else "unaware"
    return [record for record in journal.read(folder / "journal.jsonl") if record.attacker == attacker]


def failed_clearly(record: Record) -> bool:
    return record.status == "failed" and len(record.reason) > 10 and not record.scores


def over_blank(record: Record) -> float:
    assert record.blank is not None
    return record.scores["psnr"] - record.blank


@each_attack
@pytest.mark.parametrize("entry", [torch.nan, pytest.param(torch.inf, marks=pytest.mark.more)])
def test_a_number_that_is_none_fails_the_trial(name: str, entry: float, tmp_path: Path) -> None:
    """Or it does not matter: who reads a picture off one row of a planted layer need not look at the others."""
    records = records_of(name, tmp_path / "run", defense=Spoiled(entry=entry))
    assert len(records) == 2
    for record in records:
        assert failed_clearly(record) or (name in PLANTING and record.scores["psnr"] > 60)


@pytest.mark.more
@each_attack
@pytest.mark.parametrize("times", [1e25, 1e37])
def test_an_update_too_large_for_its_distance_fails_or_is_read_exactly(name: str, times: float, tmp_path: Path) -> None:
    """At 1e25 squares overflow, at 1e37 sums do."""
    if times == 1e25 and isinstance(getattr(ATTACKS[name](), "distance", None), L1):
        pytest.skip("L1 takes no squares")
    for record in records_of(name, tmp_path / "run", defense=Spoiled(times=times)):
        assert failed_clearly(record) or record.scores["psnr"] > 60


@each_attack
def test_an_update_of_zeros_tells_nothing(name: str, tmp_path: Path) -> None:
    for record in records_of(name, tmp_path / "run", defense=Spoiled(times=0.0)):
        nothing = record.status == "ok" and over_blank(record) < 1
        assert failed_clearly(record) or nothing


@pytest.mark.more
@each_attack
def test_a_batch_larger_than_the_number_of_classes(name: str, tmp_path: Path) -> None:
    records = records_of(name, tmp_path / "run", examples=CLASSES + 2)
    assert len(records) == 2 * (CLASSES + 2)
    for record in records:
        assert record.status == "ok"
        assert "repeated-labels" in record.flags


@pytest.mark.more
@each_method
def test_grayscale(name: str, tmp_path: Path) -> None:
    """As well as in color: far above the blank picture, with the options that succeed on an easy scene."""
    for record in records_of(name, tmp_path / "run", (1, 8, 8), options=ATTACK_ROWS[name].easy):
        assert record.status == "ok"
        assert over_blank(record) > 3


@pytest.mark.more
@each_method
def test_pictures_of_one_pixel(name: str, tmp_path: Path) -> None:
    """A pixel has no neighbors: total variation has nothing to say."""
    if name.startswith("loda-inverse"):
        pytest.skip("its extractor refuses pictures of one pixel")
    options = ATTACK_ROWS[name].easy
    if "steps" in options and not name.endswith(VARIANTS):
        options = options | {"steps": 60}  # three numbers are soon found
    for record in records_of(name, tmp_path / "with", (3, 1, 1), options=options):
        assert record.status == "ok"
        assert over_blank(record) > 0
    if "tv" in options_of(ATTACKS[name]) and name not in PLANTING:
        for record in records_of(name, tmp_path / "without", (3, 1, 1), options={**options, "tv": 0.0}):
            assert record.status == "ok"
            assert over_blank(record) > 0
