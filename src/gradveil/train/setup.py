"""From settings to what runs: everything is checked here, before anything is written."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Protocol, get_args

import torch
from torch import nn

from gradveil.core.client import in_client_mode, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch
from gradveil.train.client import running_of
from gradveil.train.clients import Clients
from gradveil.train.fused_fedsgd import FusedFedSgd, can_fuse, fused_gradient_agrees
from gradveil.train.gossip import Gossip, copy_to_nodes
from gradveil.train.partition import partition
from gradveil.train.server_rounds import ServerRounds, zero_velocity
from gradveil.train.settings import Federation, Precision
from gradveil.train.state import Outcome, State


class Engine(Protocol):
    """What plays rounds."""

    def most(self) -> int: ...
    def block(self, state: State, rounds: int) -> tuple[State, list[Outcome]]: ...


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Where and how fast, never what: `bf16` and `tf32` round more, so they are no default."""

    device: str = "cpu"
    precision: Precision = "float32"
    graphs: bool = True  # capture a step as a CUDA graph
    fused: bool = True  # one pass for all clients where that is the same
    chunk: int | None = None  # clients of a stack; 1: one by one

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise unknown("precision", self.precision, get_args(Precision))
        if self.chunk is not None and self.chunk < 1:
            raise ConfigError(f"must be at least 1, got {self.chunk}", key="chunk")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "float64" else torch.float32


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A federation ready to run."""

    model: nn.Module  # as shared and as evaluated
    engine: Engine
    start: State
    validation: Batch
    notes: tuple[str, ...] = ()


def set_up(
    model: nn.Module,
    data: Batch,
    validation: Batch,
    federation: Federation,
    defense: Defense,
    speed: Speed,
    public: Batch | None = None,
) -> Setup:
    """Model and data on the device, in the chosen precision; the bound defense; the engine that fits."""
    check_pictures("data", data)
    check_pictures("validation", validation, like=data)
    shares = partition(data.labels, federation)
    training = federation.local_training(1, 0.0)
    defense.check(in_client_mode(model, training))  # as clients run it: batch normalization may be in training mode
    shared = defense.model(copy.deepcopy(model)).to(speed.device, speed.dtype).eval()
    data, validation = (Batch(*(x.to(speed.device, speed.dtype) for x in b)) for b in (data, validation))
    check_model(shared, data)
    clients = Clients(
        model=in_client_mode(shared, training),
        data=data,
        shares=shares,
        federation=federation,
        defense=defense,
        chunk=speed.chunk,
    )
    clients.defense = bind_defense(clients, shared, public)
    engine, notes = engine_for(clients, shared, speed)
    start = State(
        round=0,
        params=parameters_of(shared),
        running=running_of(shared) if federation.batchnorm == "batch-shared" else {},
        velocity=zero_velocity(parameters_of(shared), federation),
    )
    start = State.of(0, {name: x.clone() for name, x in start.tensors().items()})
    if federation.topology == "gossip":
        start = copy_to_nodes(start, federation.clients)
    return Setup(model=shared, engine=engine, start=start, validation=validation, notes=notes)


def engine_for(clients: Clients, shared: nn.Module, speed: Speed) -> tuple[Engine, tuple[str, ...]]:
    if clients.federation.topology == "gossip":
        return Gossip(clients), ()
    if not speed.fused or not can_fuse(clients, shared):
        return ServerRounds(clients), ()
    if not fused_gradient_agrees(shared, clients.data, clients.federation):
        return ServerRounds(clients), ("clients run one after the other: this model mixes the pictures of a batch",)
    return FusedFedSgd(clients=clients, sent=shared, bf16=speed.precision == "bf16", graphs=speed.graphs), ()


def bind_defense(clients: Clients, model: nn.Module, public: Batch | None) -> Defense:
    """The defense as it knows the federation: its smallest client, and what is public."""
    federation = clients.federation
    smallest = clients.data_of(min(range(federation.clients), key=clients.count))
    if federation.method == "fedsgd":
        smallest = Batch(*(x[: federation.batch_size] for x in smallest))
    known = None if public is None else Batch(*(x.to(smallest.images) for x in public))
    private = Batch(*(x[None] for x in smallest))
    scenario = Scenario(name="training", model=model, private=private, names=("client-0",), public=known)
    return clients.defense.bind(scenario)


def check_pictures(name: str, batch: Batch, like: Batch | None = None) -> None:
    """Pictures [n, c, h, w] and soft labels [n, class], finite, and of the same kind as the others."""
    images, labels = batch
    if images.dim() != 4 or labels.dim() != 2 or len(images) != len(labels) or not len(images):
        got = f"{tuple(images.shape)} and {tuple(labels.shape)}"
        raise ConfigError(f"must be pictures [n, c, h, w] and labels [n, class], got {got}", key=name)
    if like is not None and (images.shape[1:], labels.shape[1:]) != (like.images.shape[1:], like.labels.shape[1:]):
        raise ConfigError(
            f"must have the training data's shape {tuple(like.images.shape[1:])} and {like.labels.shape[1]} classes, "
            f"got {tuple(images.shape[1:])} and {labels.shape[1]} classes",
            key=name,
        )
    for what, x in (("pictures", images), ("labels", labels)):
        if not x.is_floating_point() or not bool(x.isfinite().all()):
            raise ConfigError(f"{what} must be finite floating-point numbers, repair the data", key=name)


@torch.no_grad()
def check_model(model: nn.Module, data: Batch) -> None:
    expected = (1, data.labels.shape[1])
    try:
        got = tuple(model(data.images[:1]).shape)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"cannot take pictures {tuple(data.images.shape[1:])}: {reason}", key="model") from error
    if got != expected:
        raise ConfigError(f"must give logits of shape {expected} for one picture, got {got}", key="model")
