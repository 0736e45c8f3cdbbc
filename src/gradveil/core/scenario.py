"""What is audited: whose model, whose data, how they train, and what the attacker may know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from gradveil.core.local_training import BatchNorm as BatchNorm
from gradveil.core.local_training import LocalTraining as LocalTraining
from gradveil.core.local_training import Loss as Loss
from gradveil.core.target import Target, TargetKind
from gradveil.core.types import Batch

if TYPE_CHECKING:
    from gradveil.core.scenario import Received
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradveil.core.types import Labels, Update

FEDSGD = LocalTraining()
Regime = Literal["diagnostic", "deployment"]


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    """What the attacker knows and may do."""

    knows_labels: bool = True
    knows_training: bool = True  # local steps and rate; the rest of `LocalTraining` is the protocol's
    knows_defense: bool = False  # the adaptive attacker
    sees_encodings: bool = False  # what a defense makes of pictures before training, as where it is published
    may_plant: bool = False  # the actively dishonest server
    rounds: int = 1  # of one client that it may join up: same model, same data, new random numbers


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One model and many independent clients: their data, their training, their enemy.

    `private` holds every client's data with a leading client axis; `names` tells the clients apart, so that a
    client's random numbers do not depend on who else is audited. With `aggregate` above 1 a "client" is a group of that
    many, its pictures dealt out evenly, and the server sees the sum of their updates alone.
    """

    name: str
    model: nn.Module
    private: Batch
    names: tuple[str, ...]
    training: LocalTraining = FEDSGD
    threat: ThreatModel = ThreatModel()
    public: Batch | None = None
    trained: bool = False  # early models leak most
    aggregate: int = 1  # clients whose updates reach the server as one sum
    chosen: bool = False  # whether its pictures were chosen for being unusual and are no random sample
    received: Received | None = None  # what real clients sent; without it they are played
    target_kind: TargetKind | None = None  # of the labels; None: what the loss speaks of

    def __post_init__(self) -> None:
        """Epochs become steps, of which all others speak."""
        training = self.training.for_examples(self.private.images.shape[1] // self.aggregate)
        object.__setattr__(self, "training", training)

    @property
    def has_truth(self) -> bool:
        """Whether `private` holds the clients' pictures and not only their number."""
        return self.received is None or self.received.has_truth

    @property
    def regime(self) -> Regime:
        """Diagnostic: all that makes an attack easy. A verdict never mixes the two."""
        if self.received is not None:
            return "deployment"
        one = self.training.steps == 1 and self.training.is_plain_step and not self.training.draws
        easy = self.private.images.shape[1] == 1 and one and self.training.batchnorm == "eval"
        granted = self.threat.knows_labels and self.threat.knows_training
        return "diagnostic" if easy and granted and not self.trained else "deployment"

    @property
    def target(self) -> Target:
        """What a picture is answered with."""
        several = self.training.loss == "binary-cross-entropy"
        kind = self.target_kind or ("several" if several else "classes")
        return Target(shape=tuple(self.private.labels.shape[2:]), kind=kind)

    @property
    def classes(self) -> int:
        return self.private.labels.shape[2]


def describe(scenario: Scenario) -> dict[str, Any]:
    """With the keys of a config file, as far as they can be known."""
    clients, examples = scenario.private.images.shape[:2]
    training = scenario.training.to_table()
    return {
        "name": scenario.name,
        "model": type(scenario.model).__name__,
        "images": clients,
        "batch_size": examples,
        "local_steps": training.pop("steps"),
        "local_rate": training.pop("rate"),
        "local_batch_size": training.pop("batch_size", 0),
        **training,
        "labels": "known" if scenario.threat.knows_labels else "inferred",
        "training": "known" if scenario.threat.knows_training else "estimated",
        "rounds": scenario.threat.rounds,
        "aggregate": scenario.aggregate,
        "encodings": "seen" if scenario.threat.sees_encodings else "hidden",
        "attacker": "malicious" if scenario.threat.may_plant else "curious",
    }


Replayed = Literal["reproduced", "alike", "not reproduced"]


@dataclass(frozen=True, kw_only=True)
class Received:
    """Updates of clients alike, each [client, *parameter]."""

    update: Update
    statistics: Mapping[str, Tensor] | None = None  # running statistics, each [client, channel]
    labels: Labels | None = None  # as far as the server was told
    has_truth: bool = False  # whether the scenario's private pictures are the clients' own
    replayed: tuple[Replayed, ...] = ()  # of each client, where they are

    def take(self, some: slice | list[int]) -> Received:
        """Some of the clients. A slice is a view: every attack has its shards, and one copy of the data is enough."""
        places = range(len(next(iter(self.update.values()))))[some] if isinstance(some, slice) else some

        def of(x: Tensor) -> Tensor:
            return x[some] if isinstance(some, slice) else x[torch.as_tensor(some, dtype=torch.long, device=x.device)]

        return replace(
            self,
            update={name: of(u) for name, u in self.update.items()},
            statistics=None if self.statistics is None else {k: of(v) for k, v in self.statistics.items()},
            labels=None if self.labels is None else of(self.labels),
            replayed=tuple(self.replayed[place] for place in places) if self.replayed else (),
        )

    def __getstate__(self) -> dict[str, Any]:
        """To other machines: a view would take everything along that it is a view of."""
        return vars(self.take(list(range(len(next(iter(self.update.values())))))))

    def to(self, device: str, dtype: torch.dtype) -> Received:
        def move(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.to(device, dtype) for name, tensor in tensors.items()}

        return replace(
            self,
            update=move(self.update),
            statistics=None if self.statistics is None else move(self.statistics),
            labels=None if self.labels is None else self.labels.to(device, dtype),
        )


def stack_by_name(each: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}
