"""Cells of a small scene for the tests of the oracle: the truth is played by hand, and the server may be at fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradveil.audit.oracle import Explained, explain
from gradveil.audit.plan import Cell
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch, Update
from gradveil.experiment.record import Attacker, Record

SHAPE, CLASSES = (1, 8, 8), 4


@dataclass(frozen=True)
class Believes(Attack):
    """Shows pictures that it was given."""

    images: Tensor
    labels: Tensor

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        count = len(seen.names)
        found, loss = torch.ones(self.images.shape[:2], dtype=torch.bool), torch.zeros(count)
        return Reconstruction(images=self.images, labels=self.labels, found=found, loss=loss)


def scene(clients: int = 4, examples: int = 1, known: bool = True, **training) -> Scenario:
    rng = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Sigmoid(), nn.Linear(16, CLASSES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=rng))
    images = torch.rand(clients, examples, *SHAPE, generator=rng)
    labels = torch.eye(CLASSES)[torch.arange(clients * examples) % CLASSES].view(clients, examples, CLASSES)
    return Scenario(
        name="scene", model=model, private=Batch(images, labels), names=tuple(f"c{i}" for i in range(clients)),
        training=LocalTraining(**training), threat=ThreatModel(knows_defense=known),
    )  # fmt: skip


def cell_of(defense: Defense, scenario: Scenario, attacker: Attacker = "adaptive", label: str = "defended") -> Cell:
    guess = Believes(*scenario.private)
    return Cell(scenario=scenario, label=label, defense=defense, attack="guess", method=guess,
                seed=Seed(0), compute=Compute(), attacker=attacker)  # fmt: skip


Fault = Callable[[Update], Update]


def look(
    defense: Defense,
    scenario: Scenario,
    guess: Batch | None = None,
    fault: Fault = dict,
    attacker: Attacker = "adaptive",
) -> Explained:
    """The oracle on one cell: the attack shows `guess` (by default noise), and `fault` strikes what is received."""
    cell = cell_of(defense, scenario, attacker)
    seen, truth = observe(scenario, defense, cell.method, cell.observed)
    seen = replace(seen, update=fault(seen.update))
    images = torch.rand(scenario.private.images.shape, generator=torch.Generator().manual_seed(9))
    labels = scenario.private.labels if seen.labels is None else seen.labels
    return explain(cell, seen, truth, Believes(*(guess or Batch(images, labels))).reconstruct(seen, Seed()))


def records_of(found: Explained, clients: int = 4, **changes) -> list[Record]:
    """As an audit writes them."""
    about = {"scenario": "scene", "defense": "defended", "attack": "guess", "attacker": "adaptive"} | changes
    return [
        Record(key=f"scene/defended/guess/adaptive/c{i}/0", status="ok", client=f"c{i}", example=0, seed=0, seconds=0.0,
               backend="vmap", explained=found.of(i), flags=found.doubts(i), notes=found.notes, **about)
        for i in range(clients)
    ]  # fmt: skip


def truth_as_fed(defense: Defense, scenario: Scenario) -> Truth:
    return observe(scenario, defense, Believes(*scenario.private), cell_of(defense, scenario).observed)[1]
