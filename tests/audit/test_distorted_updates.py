"""Defenses that whoever knows them can undo, whose author says that knowing them changes nothing: nobody is cleared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.config import AuditConfig, Choice, ScenarioConfig, build
from gradveil.core.defense import Defense
from gradveil.core.types import Update
from gradveil.defenses.gaussian import Gaussian


@dataclass(frozen=True)
class Distorts(Defense):
    change: Callable[[Tensor, Generator], Tensor]

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self.change(u, rng) for name, u in update.items()}

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


def adds_a_constant(u: Tensor, rng: Generator) -> Tensor:
    return u + 5 * torch.randn(u.shape, generator=torch.Generator().manual_seed(u.numel()))


def keeps_one_in_ten(u: Tensor, rng: Generator) -> Tensor:
    return 10 * u * (torch.rand(u.shape, generator=rng) < 0.1)


def test_only_noise_is_taken_for_noise(tmp_path: Path) -> None:
    """A search sees nothing of any of the three, and the truth explains next to nothing."""
    scenario = ScenarioConfig(model="lenet", data="digits", data_options={"size": 8, "split": "train"}, images=8)
    attack = {"a": Choice(name="dlg", options={"steps": 50, "restarts": 1})}
    config = AuditConfig(scenario=scenario, attack=attack, gallery=200, convergence=True, lineup=0, seed=4)
    defenses = {
        "none": Defense(),
        "constant": Distorts(adds_a_constant),
        "thinned": Distorts(keeps_one_in_ten),
        "noise": Gaussian(scale=5.0),
    }
    run_audit(replace(build(config), defenses=defenses, settings={}), tmp_path)
    run = read_run(tmp_path)
    assert run.provenance["searches"] == ["a"]
    verdict = judge(run)
    words = {finding.tally.defense: finding.verdict for finding in verdict.findings}
    assert words == {"none": "leaks", "constant": "inconclusive", "thinned": "inconclusive", "noise": "no leak found"}
    failures = {one.defense: one.failure for one in verdict.oracles}
    assert (failures["constant"], failures["thinned"], failures["noise"]) == ("lacking", "zeroed", "")
