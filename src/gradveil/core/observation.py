"""What the server sees of a round, and what an attack on it is measured against. The truth never enters what is seen.

`gradveil.core.server` is the only maker of both: `observe` plays the clients, `observe_received` takes what real ones
sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gradveil.core.knowledge import NO_KNOWLEDGE, Knowledge
from gradveil.core.scenario import LocalTraining
from gradveil.core.target import Target
from gradveil.core.types import Batch, Labels, Update

if TYPE_CHECKING:
    from gradveil.core.defense import Defense

NO_TARGET = Target(shape=())
REDRAWN = ("data", "batch")  # stages at which a defense may feed other pictures in every round


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One model sent, many updates received: everything that an attack may look at."""

    model: nn.Module  # as sent
    update: Update  # each [client, *parameter]
    training: LocalTraining  # with one step at rate 1 in the place of what is not known, and without draws
    examples: int  # as fed; for one who knows a defense that feeds copies, without them: see `as_fed`
    shape: tuple[int, int, int]
    classes: int
    names: tuple[str, ...]  # of the clients; random streams are keyed by them
    labels: Labels | None = None
    defense: Defense | None = None
    public: Batch | None = None
    statistics: Mapping[str, Tensor] | None = None  # running statistics as sent back, each [client, channel]
    history: tuple[Observation, ...] = ()  # earlier rounds of the same clients
    training_known: bool = True  # local steps and rate
    knowledge: Knowledge = NO_KNOWLEDGE  # of the defense; empty where the threat model grants nothing
    target: Target = NO_TARGET  # what a picture is answered with; by default one of `classes`, or several

    def __post_init__(self) -> None:
        if self.target is NO_TARGET:
            several = self.training.loss == "binary-cross-entropy"
            target = Target(shape=(self.classes,), kind="several" if several else "classes")
            object.__setattr__(self, "target", target)

    def take(self, clients: Sequence[int]) -> Observation:
        """The same round as if only these clients were in it; a client may be taken more than once."""
        at = torch.as_tensor(list(clients), device=next(iter(self.update.values())).device)
        return replace(
            self,
            update={name: u[at] for name, u in self.update.items()},
            names=tuple(self.names[i] for i in clients),
            labels=None if self.labels is None else self.labels[at],
            statistics=None if self.statistics is None else {k: v[at] for k, v in self.statistics.items()},
            history=tuple(round_.take(clients) for round_ in self.history),
            knowledge=self.knowledge.take(at),
        )

    def as_fed(self) -> Observation:
        """For attacks that read off whatever was fed, copies too: as one sees the round who does not know of them."""
        copies = self.knowledge.copies
        labels = None if self.labels is None else self.labels.repeat_interleave(copies, 1)
        earlier = tuple(one.as_fed() for one in self.history)
        return replace(self.unaware(), examples=copies * self.examples, labels=labels, history=earlier)

    def average_rounds(self) -> Observation:
        """One round in the place of all, with the mean of their updates: noise of mean zero falls by sqrt(rounds).

        Not by an attacker who knows that the pictures may be others in every round: it keeps to the last one.
        """
        if not self.history:
            return self
        if self.defense is not None and any(self.defense.acts_at(stage) for stage in REDRAWN):
            return replace(self, history=())
        rounds = (*self.history, self)
        mean = {name: torch.stack([one.update[name] for one in rounds]).mean(0) for name in self.update}
        return replace(self, update=mean, history=())

    def unaware(self) -> Observation:
        """The same round for an attacker who does not know the defense; what was given away besides stays."""
        return replace(self, defense=None, knowledge=Knowledge(encodings=self.knowledge.encodings))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What the attack is measured against: the private pictures, and the pictures as fed to the model."""

    private: Batch
    fed: Batch
