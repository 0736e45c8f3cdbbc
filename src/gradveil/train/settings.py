"""How a federation trains: who takes part, how the data are split, and what a client does in a round."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from gradveil.core.errors import ConfigError, unknown
from gradveil.core.scenario import BatchNorm, LocalTraining, Loss
from gradveil.train.centralized import FALLS

Method = Literal["fedsgd", "fedavg", "fedprox"]
Topology = Literal["central", "gossip"]
MOST_ROUNDS, MOST_CLIENTS = 10_000_000, 100_000
_SPLIT = re.compile(r"iid|dirichlet:(?P<alpha>[^:]+)|classes:(?P<classes>\d+)")


@dataclass(frozen=True, kw_only=True)
class Federation:
    """One federation. With `fedsgd` the server's optimizer has rate, momentum and decay, and clients send gradients."""

    clients: int = 10
    per_round: int | None = None  # clients drawn for a round; None: all
    rounds: int = 100
    split: str = "iid"  # "iid", "dirichlet:0.5", "classes:2"
    topology: Topology = "central"
    neighbors: str = "ring"  # of gossip alone: "ring", "complete", or "random:2" (new ones in every round)
    method: Method = "fedavg"
    proximal: float = 0.01  # of fedprox alone
    local_epochs: int = 1  # of fedavg and fedprox
    batch_size: int = 32  # of one client and step
    rate: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay: bool = False  # tenfold at 3/8, 5/8 and 7/8 of the rounds
    batchnorm: BatchNorm = "eval"  # "batch-shared": the server averages the running statistics
    augment: bool = False  # crop and flip, after a defense at stage data and before one at stage batch
    error_feedback: bool = False  # clients remember what a defense kept from being sent
    loss: Loss = "cross-entropy"
    seed: int = 0

    def __post_init__(self) -> None:
        _check_names(self)
        _check_counts(self)
        _check_rates(self)
        split_of(self.split)
        _check_neighbors(self)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"client-{i}" for i in range(self.clients))

    def rate_at(self, progress: float) -> float:
        """The learning rate when this share of the rounds is behind us."""
        return self.rate * 0.1 ** sum(progress >= fall for fall in FALLS) if self.decay else self.rate

    def local_training(self, examples: int, progress: float) -> LocalTraining:
        """One client's round. `fedsgd`: one step at rate 1 on one batch, which is all that the client has there."""
        if self.method == "fedsgd":
            return LocalTraining(batchnorm=self.batchnorm, loss=self.loss)
        return LocalTraining(
            steps=self.local_epochs * math.ceil(examples / self.batch_size),
            rate=self.rate_at(progress),
            batch_size=min(self.batch_size, examples),
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            batchnorm=self.batchnorm,
            loss=self.loss,
        )

    def progress(self, round: int) -> float:
        """The share of the rounds that is behind us when `round` (from 1) begins."""
        return (round - 1) / self.rounds


def split_of(text: str) -> tuple[str, float]:
    """Kind and number of a split.

    >>> split_of("dirichlet:0.5"), split_of("iid")
    (('dirichlet', 0.5), ('iid', 0.0))
    """
    found = _SPLIT.fullmatch(text)
    kind, _, number = text.partition(":")
    try:
        value = float(number or 0)
    except ValueError:
        value = math.nan
    if found is None or (kind != "iid" and not (value > 0 and math.isfinite(value))):
        raise ConfigError(f"must be iid, dirichlet:ALPHA or classes:N with a number above 0, got {text!r}", key="split")
    return kind, value


def neighbors_of(text: str) -> tuple[str, int]:
    """Kind and number of the neighbors of gossip.

    >>> neighbors_of("random:3"), neighbors_of("ring")
    (('random', 3), ('ring', 0))
    """
    found = re.fullmatch(r"(ring|complete|random:(\d{1,5}))", text)
    if found is None or found[2] == "0":
        raise ConfigError(f"must be ring, complete or random:N, got {text!r}", key="neighbors")
    return text.partition(":")[0], int(found[2] or 0)


def _check_names(settings: Federation) -> None:
    for name, kind in {"method": Method, "topology": Topology, "batchnorm": BatchNorm, "loss": Loss}.items():
        if (value := getattr(settings, name)) not in get_args(kind):
            raise unknown(name, str(value), get_args(kind))


def _check_counts(settings: Federation) -> None:
    most = {"rounds": MOST_ROUNDS, "clients": MOST_CLIENTS, "local_epochs": 10_000, "batch_size": 1_000_000}
    for name, limit in most.items():
        if not 1 <= (value := getattr(settings, name)) <= limit:
            raise ConfigError(f"must be 1 to {limit}, got {value}", key=name)
    if settings.per_round is not None and not 1 <= settings.per_round <= settings.clients:
        clients, count = settings.clients, settings.per_round
        raise ConfigError(f"must be 1 to {clients} (the number of clients), got {count}", key="per_round")
    if settings.topology == "gossip" and settings.per_round not in (None, settings.clients):
        raise ConfigError(
            "with `topology = gossip` every client takes part in every round, leave it out", key="per_round"
        )


def _check_neighbors(settings: Federation) -> None:
    _, count = neighbors_of(settings.neighbors)
    if settings.topology == "gossip" and count >= settings.clients:
        others = settings.clients - 1
        raise ConfigError(
            f"must be at most random:{others} ({others} other clients), got random:{count}", key="neighbors"
        )


def _check_rates(settings: Federation) -> None:
    for name in ("rate", "proximal", "weight_decay"):
        value = getattr(settings, name)
        if not (math.isfinite(value) and (value > 0 if name == "rate" else value >= 0)):
            least = "above 0" if name == "rate" else "0 or more"
            raise ConfigError(f"must be {least} and finite, got {value}", key=name)
    if not 0 <= settings.momentum < 1:
        raise ConfigError(f"must be 0 or more and below 1, got {settings.momentum}", key="momentum")
    if settings.nesterov and not settings.momentum:
        raise ConfigError("needs a momentum above 0, set for example `momentum = 0.9`", key="nesterov")
