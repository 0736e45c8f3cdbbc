"""How a federation trains (`Federation`), and all settings of a training by name (`TrainSettings`)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gradveil.core.errors import ConfigError, unknown
from gradveil.core.local_training import BatchNorm, Dropout, LocalOptimizer, LocalTraining, Loss
from gradveil.train.centralized import FALLS

Method = Literal["fedsgd", "fedavg", "fedprox"]
Topology = Literal["central", "gossip"]
Precision = Literal["float32", "tf32", "bf16", "float64"]
Engine = Literal["local", "flower"]
EVALUATIONS = 20
LOCAL = ("optimizer", "clip_gradients", "label_smoothing", "dropout")
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
    optimizer: LocalOptimizer = "sgd"  # of a client's steps, and so are the next three; fedsgd has none
    clip_gradients: float = 0.0  # largest norm of a step's gradient; 0: none
    label_smoothing: float = 0.0
    dropout: Dropout = "off"
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
    def goes_alone(self) -> bool:
        """Whether a client's steps cannot be taken together with those of others: norms and masks are its own."""
        return bool(self.clip_gradients) or self.dropout == "on"

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
            nesterov=self.nesterov,
            optimizer=self.optimizer,
            clip_gradients=self.clip_gradients,
            label_smoothing=self.label_smoothing,
            dropout=self.dropout,
            weight_decay=self.weight_decay,
            batchnorm=self.batchnorm,
            loss=self.loss,
        )

    def progress(self, round: int) -> float:
        """The share of the rounds that is behind us when `round` (from 1) begins."""
        return (round - 1) / self.rounds


def default_federation() -> Federation:
    """Ten clients and twenty rounds: what `gradveil train` does without options."""
    return Federation(rounds=20, batch_size=16, rate=0.05, momentum=0.9, batchnorm="batch-shared")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What is trained on what, by whom, and what is saved.

    `data_options` and `defense` as on the command line (`{"limit": 64}` or `["limit=64"]`, `"prune:ratio=0.9"`).
    `epochs` (fedsgd only) replaces `federation.rounds` by the rounds that feed every picture so often. `checkpoints`
    is a number, evenly spaced, or a tuple of rounds. `delta` belongs to the epsilon of dpsgd and fedcdp.
    `epsilon_at_most`: the round that would exceed it is not played; None: all are.
    """

    model: str = "lenet"
    normalize: str = "auto"  # constants in front of the model, as in a scenario
    data: str = "photos"
    data_options: Mapping[str, Any] | Sequence[str] = ()
    defense: str = "none"
    federation: Federation = field(default_factory=default_federation)
    epochs: int | None = None
    checkpoints: int | tuple[int, ...] = 4
    evaluate_every: int | None = None  # rounds; None: about 20 evaluations, with `epochs` one in each
    engine: Engine = "local"
    device: str = "auto"
    precision: Precision = "float32"
    chunk: int | None = None
    delta: float | None = None
    epsilon_at_most: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.data_options, Mapping):
            texts = (f"{key}={str(x).lower() if isinstance(x, bool) else x}" for key, x in self.data_options.items())
            object.__setattr__(self, "data_options", tuple(texts))
        _check_run(self)
        _check_engine(self)

    def identity(self) -> dict[str, Any]:
        """What decides about the result beside the federation, as config.toml stores it."""
        said = {} if self.normalize == "auto" else {"normalize": self.normalize}  # as in runs without the key
        return {
            "model": self.model,
            **said,
            "data": self.data,
            "data_options": self.data_options,
            "asked": self.defense,
        }

    def federation_of(self, pictures: int) -> Federation:
        """The federation; `epochs` are as many rounds as feed each of the pictures so often."""
        if self.epochs is None:
            return self.federation
        fed = (self.federation.per_round or self.federation.clients) * self.federation.batch_size
        return replace(self.federation, rounds=self.epochs * max(1, pictures // fed))

    def rounds_to_save(self, rounds: int) -> tuple[int, ...]:
        """The rounds after which a checkpoint is written.

        >>> TrainSettings().rounds_to_save(20), TrainSettings(checkpoints=(1, 20)).rounds_to_save(20)
        ((5, 10, 15, 20), (1, 20))
        """
        if isinstance(self.checkpoints, int):
            return evenly(min(self.checkpoints, rounds), rounds)
        for number in self.checkpoints:
            if not 1 <= number <= rounds:
                raise ConfigError(f"must be rounds of 1 to {rounds}, got {number}", key="checkpoints")
        return tuple(sorted(set(self.checkpoints)))

    def rounds_between_evaluations(self, rounds: int) -> int:
        return self.evaluate_every or max(1, rounds // (self.epochs or EVALUATIONS))


def evenly(count: int, rounds: int) -> tuple[int, ...]:
    """`count` rounds, evenly spaced; the last one is among them.

    >>> evenly(4, 100)
    (25, 50, 75, 100)
    """
    return tuple(sorted({math.ceil(rounds * (i + 1) / count) for i in range(count)}))


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


def _check_run(settings: TrainSettings) -> None:
    federation, epochs = settings.federation, settings.epochs
    if not 0 <= federation.seed < 2**63:
        raise ConfigError(f"must be 0 to 2^63 - 1, got {federation.seed}", key="seed")
    if settings.precision not in get_args(Precision):
        raise unknown("precision", settings.precision, get_args(Precision))
    for name, value in (("epochs", epochs), ("evaluate_every", settings.evaluate_every), ("chunk", settings.chunk)):
        if value is not None and value < 1:
            raise ConfigError(f"must be at least 1, got {value}", key=name)
    if epochs is not None and federation.method != "fedsgd":
        raise ConfigError("needs `method = fedsgd`; other methods take `rounds` and `local_epochs`", key="epochs")
    if federation.method == "fedsgd" and federation.local_epochs != 1:
        raise ConfigError("with `method = fedsgd` a client takes one batch a round, leave it out", key="local_epochs")
    if settings.delta is not None and not 0 < settings.delta < 1:
        raise ConfigError(f"must be above 0 and below 1, such as 1e-5, got {settings.delta}", key="delta")
    settings.rounds_to_save(settings.federation_of(pictures=1_000_000).rounds)


def _check_engine(settings: TrainSettings) -> None:
    """Flower's clients are processes of their own, on a CPU and in float32, with a model that all of them can make."""
    if settings.engine not in get_args(Engine):
        raise unknown("engine", settings.engine, get_args(Engine))
    if settings.engine == "local":
        return
    possible = {"device": ("auto", "cpu"), "precision": ("float32",), "chunk": (None,), "evaluate_every": (None, 1),
                "normalize": ("auto",)}  # fmt: skip
    for name, values in possible.items():
        if (value := getattr(settings, name)) not in values:
            raise ConfigError(f"{value} needs `engine = local`, leave it out", key=name)


def _check_names(settings: Federation) -> None:
    for name, kind in {
        "method": Method,
        "topology": Topology,
        "batchnorm": BatchNorm,
        "loss": Loss,
        "optimizer": LocalOptimizer,
        "dropout": Dropout,
    }.items():
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
    for name in LOCAL if settings.method == "fedsgd" else ():
        if getattr(settings, name) != getattr(Federation, name):
            raise ConfigError("is of local steps, which `method = fedsgd` does not take, leave it out", key=name)
    if not (settings.clip_gradients >= 0 and math.isfinite(settings.clip_gradients)):
        raise ConfigError(f"must be 0 or more and finite, got {settings.clip_gradients}", key="clip_gradients")
    if not 0 <= settings.label_smoothing <= 1:
        raise ConfigError(f"must be 0 to 1, got {settings.label_smoothing}", key="label_smoothing")
    settings.local_training(1, 0.0)  # which refuses what contradicts itself
