"""Five toy defenses, one for each masking flag; a plain model raises none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from oracle_cells import look, records_of, scene
from torch import Generator
from toys import pictures

from gradveil.attacks import ATTACKS
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.flags import FLAGS
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.core.defense import Defense
from gradveil.core.types import Update
from gradveil.defenses.gaussian import Gaussian
from gradveil.metrics import METRICS

ON_RECORDS = {"zeros-in-update", "changes-with-each-draw", "no-slope", "truth-explains-less"}
FLAG = "gradient-attack-weaker"


@dataclass(frozen=True)
class Zeros(Defense):
    """Every second number."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u * (torch.arange(u.numel()) % 2).view_as(u) for name, u in update.items()}


@dataclass(frozen=True)
class NotFinite(Defense):
    def update(self, update: Update, rng: Generator) -> Update:
        return {name: torch.where(u == u.max(), torch.inf, u) for name, u in update.items()}


@dataclass(frozen=True)
class Staircase(Defense):
    """Rounded, and its surrogate rounds as well: no slope anywhere."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: (u * 1e6).round() / 1e6 for name, u in update.items()}

    def surrogate(self, seen: Update) -> Defense:
        return Floor()


@dataclass(frozen=True)
class Floor(Defense):
    def update(self, update: Update, rng: Generator) -> Update:
        return {name: (u * 1e6).round() / 1e6 for name, u in update.items()}


@dataclass(frozen=True)
class Halves(Defense):
    """Half of the update, and the attacker's client knows nothing of it."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: 0.2 * u for name, u in update.items()}

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


def flags_on(defense: Defense) -> set[str]:
    return {flag for record in records_of(look(defense, scene())) for flag in record.flags}


@pytest.mark.parametrize(
    ("defense", "flag"),
    [(Zeros(), "zeros-in-update"), (NotFinite(), "zeros-in-update"), (Gaussian(relative=0.1), "changes-with-each-draw"),
     (Staircase(), "no-slope"), (Halves(), "truth-explains-less")],
    ids=["zeros", "not finite", "draws", "staircase", "halves"],
)  # fmt: skip
def test_a_toy_defense_raises_its_flag(defense: Defense, flag: str):
    assert flag in flags_on(defense)


@pytest.mark.parametrize(
    ("defense", "flags"),
    [(Zeros(), {"zeros-in-update"}), (Gaussian(relative=0.1), {"changes-with-each-draw"}), (Staircase(), {"no-slope"})],
)
def test_and_no_other(defense: Defense, flags: set[str]):
    assert flags_on(defense) & (ON_RECORDS - {"truth-explains-less"}) == flags


def test_a_plain_model_raises_none():
    assert flags_on(Defense()) == set()


def test_all_have_a_text():
    assert {*ON_RECORDS, FLAG} <= FLAGS.keys()


@dataclass(frozen=True)
class Rows(Defense):
    """Every neuron's gradient, weight and bias, times a number of its own, that a division cancels."""

    def update(self, update: Update, rng: Generator) -> Update:
        found = dict(update)
        for layer in ("1", "3"):
            factor = 10 ** (4 * torch.rand(update[f"{layer}.bias"].shape, generator=rng) - 2)
            found[f"{layer}.bias"] = update[f"{layer}.bias"] * factor
            found[f"{layer}.weight"] = update[f"{layer}.weight"] * factor.unsqueeze(1)
        return found

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


@pytest.mark.parametrize(("defense", "raised"), [(Rows(), True), (Gaussian(relative=1e-4), False)])
def test_a_search_that_fails_where_a_division_succeeds(defense: Defense, raised: bool, tmp_path: Path):
    scenario = scene(6, known=False)
    gallery = pictures(40, 3)[:, :1]
    attacks = {"dlg": ATTACKS["dlg"](steps=15, restarts=1), "linear": ATTACKS["linear"]()}
    metrics = METRICS["psnr"](), METRICS["retrieval"](gallery=gallery)
    defenses = {"none": Defense(), "own": defense}
    audit = Audit(
        scenario=scenario,
        defenses=defenses,
        attacks=attacks,
        metrics=metrics,
        gallery=gallery,
        controls=False,
        lineup=0,
    )
    run_audit(audit, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert (FLAG in judge(run).flags) is raised
    race = {"sweep": "sweep, vmap", "vmap": "sweep, vmap"}  # of several searches
    raced = tuple(replace(record, backend=race.get(record.backend, record.backend)) for record in run.records)
    assert (FLAG in judge(replace(run, records=raced)).flags) is raised
