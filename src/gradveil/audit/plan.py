"""What an audit will run: every attack on every defense, the controls beside them, in shards of fixed clients.

A shard is run at once and written when it is done. Which clients share a shard depends on their number alone, never on
what is already there: a shard that was interrupted is run again whole, and so to the same last bit.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

from gradveil.core.attack import Attack
from gradveil.core.client import parameters_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import REDRAWN
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.experiment.record import Attacker, Control

STAGES = ("model", "data", "batch", "gradient", "update")
UNDEFENDED = "none"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One attack, by one kind of attacker, on one defense: on all clients of its scenario."""

    scenario: Scenario
    label: str  # of the defense
    defense: Defense
    attack: str
    method: Attack
    seed: Seed  # of the audit
    compute: Compute
    attacker: Attacker = "unaware"
    control: Control = ""
    compared: bool = True  # whether what comes free as a control is kept
    is_control: bool = False  # whether it shows that the attack works: then no client is skipped in a sequence

    @property
    def name(self) -> str:
        return " / ".join([self.scenario.name, self.label, self.attack, self.control or self.attacker])

    @property
    def undefended(self) -> bool:
        return self.defense.is_none

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Scenario, defense, attack, and attacker or control: what the keys of its records begin with."""
        return self.scenario.name, self.label, self.attack, self.control or self.attacker

    def key(self, client: str, example: int) -> str:
        return "/".join([*self.place, client, str(example)])

    @property
    def own_keys(self) -> list[str]:
        examples = range(self.scenario.private.images.shape[1])
        return [self.key(name, example) for name in self.scenario.names for example in examples]

    @property
    def keys(self) -> list[str]:
        """Of every record that this cell writes."""
        return self.own_keys + (replace(self, control="another").own_keys if self.compares else [])

    @property
    def compares(self) -> bool:
        """Whether its reconstructions are also held against other clients' pictures, which costs no attack."""
        several = len(self.scenario.names) > 1 and self.scenario.has_truth
        return self.compared and self.undefended and not self.control and several

    @property
    def repeats(self) -> bool:
        """Whether this adaptive attacker would run what the unaware one runs: its surrogate is no defense."""
        if self.attacker == "unaware" or "defense" in self.method.uses or self.defense.copies > 1:
            return False
        if "views" in self.method.uses and self.defense.knowledge().views:
            return False
        if self.scenario.threat.rounds > 1 and any(self.defense.acts_at(stage) for stage in REDRAWN):
            return False
        surrogate = self.defense.surrogate(parameters_of(self.scenario.model))
        return not any(surrogate.acts_at(stage) for stage in STAGES)

    @property
    def observed(self) -> Seed:
        """Neither attack nor attacker is in it: all of them look at the same updates."""
        return self.seed.at("observe", self.scenario.name, self.label)

    @property
    def attacked(self) -> Seed:
        """The unaware and the adaptive attacker start alike, so their difference is what knowing is worth."""
        return attack_seed(self.seed, self.scenario.name, self.label, self.attack)

    def only(self, names: Container[str]) -> Cell:
        """The same cell on these clients."""
        places = [place for place, name in enumerate(self.scenario.names) if name in names]
        return replace(self, scenario=clients_of(self.scenario, places))

    def shards(self, size: int) -> Iterator[Cell]:
        """The same cell on some of its clients at a time; of a control, the first of them."""
        for first in range(0, len(self.scenario.names), size):
            some = clients_of(self.scenario, slice(first, first + size))
            shows = self.undefended and not first and self.scenario.received is None
            yield replace(self, scenario=some, is_control=shows)
            if self.control:
                return


def attack_seed(seed: Seed, scenario: str, defense: str, attack: str) -> Seed:
    """Of all clients; `at(client)` is in the record of a trial and says of which run it is."""
    return seed.at("attack", scenario, defense, attack)


def clients_of(scenario: Scenario, some: slice | list[int]) -> Scenario:
    private = Batch(scenario.private.images[some], scenario.private.labels[some])
    names = scenario.names[some] if isinstance(some, slice) else tuple(scenario.names[place] for place in some)
    received = None if scenario.received is None else scenario.received.take(some)
    return replace(scenario, private=private, names=names, received=received)


def diagnostic(scenario: Scenario, early: bool = True) -> Scenario:
    """The same pictures where an attack has it easiest: alone in their batch, one step, labels known."""
    images, labels = scenario.private
    each = [f"{name}.{example}" for name in scenario.names for example in range(images.shape[1])]
    return replace(
        scenario,
        name=f"{scenario.name}-diagnostic",
        private=Batch(images.flatten(0, 1).unsqueeze(1), labels.flatten(0, 1).unsqueeze(1)),
        names=scenario.names if images.shape[1] == 1 else tuple(each),
        training=LocalTraining(loss=scenario.training.loss),
        threat=replace(scenario.threat, knows_labels=True, knows_training=True),
        trained=scenario.trained and not early,
        aggregate=1,
        received=None,
    )


def undefended(scenario: Scenario) -> Scenario:
    """The same pictures, training and attacker, for clients that run no defense."""
    return replace(scenario, name=f"{scenario.name}-undefended", received=None)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The parts of an audit that its cells are made of."""

    defenses: Mapping[str, Defense]
    attacks: Mapping[str, Attack]
    seed: Seed
    compute: Compute
    compare: bool = True  # what comes free as a control is kept

    def cells(self, scenario: Scenario) -> Iterator[list[Cell]]:
        """Every defense meets an attacker who does not know it and, where there is one, another who does."""
        for label, defense in self.defenses.items():
            for attack in self.attacks:
                unaware = self.cell(scenario, label, defense, attack)
                knowing = replace(scenario.threat, knows_defense=True)
                adaptive = replace(unaware, attacker="adaptive", scenario=replace(scenario, threat=knowing))
                none = unaware.undefended or not defense.has_adaptive_attacker
                required = self.attacks[attack].requires - {"malicious"}
                if unaware.undefended or not required:
                    yield [unaware] if none else [unaware, adaptive]
                elif required & defense.knowledge().offers:
                    yield [adaptive]

    def undefended(self, scenario: Scenario) -> Iterator[list[Cell]]:
        """The positive control."""
        for attack in self.attacks:
            yield [self.cell(scenario, self.none, Defense(), attack)]

    def controls(self, scenario: Scenario, kinds: tuple[Control, ...]) -> Iterator[list[Cell]]:
        for attack in self.attacks:
            for kind in kinds:
                cell = self.cell(scenario, self.none, Defense(), attack)
                changed = control_of(cell.method, kind)
                if changed is not None:
                    yield [replace(cell, method=changed, control=kind)]

    @property
    def none(self) -> str:
        """The label of the undefended model."""
        return next((label for label, defense in self.defenses.items() if defense.is_none), UNDEFENDED)

    def cell(self, scenario: Scenario, label: str, defense: Defense, attack: str) -> Cell:
        method = self.attacks[attack].undefended() if defense.is_none else self.attacks[attack]
        return Cell(scenario=scenario, label=label, defense=defense, attack=attack, method=method,
                    seed=self.seed, compute=self.compute, compared=self.compare)  # fmt: skip


def control_of(method: Attack, kind: Control) -> Attack | None:
    """The attack that a control runs; None where it would say nothing new."""
    if kind == "prior":
        return method.prior_only()
    if kind == "random":  # an attack without a prior of its own has been given noise already
        return None if method.prior_only() is method else method
    return method.scaled(2.0)
