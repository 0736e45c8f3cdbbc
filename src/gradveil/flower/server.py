"""A ready Flower server: any strategy behind a curious server, a checkpoint after each round, and on from the last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from torch import nn

from gradveil.core.files import private_files
from gradveil.core.local_training import LocalTraining
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.flower.arrays import record_of, tensors_of
from gradveil.flower.client import MakeModel
from gradveil.flower.curious_server import CuriousServer
from gradveil.flower.round_capture import Protocol
from gradveil.flower.server_files import ServerFiles
from gradveil.flower.strategy import LOSS, FederationStrategy
from gradveil.models.normalize import Normalize
from gradveil.train.centralized import accuracy
from gradveil.train.settings import Federation
from gradveil.train.state import RoundResult


@dataclass(frozen=True, kw_only=True)
class FlowerServer:
    """The server's side of a federation, from the first round or from the last one that a folder holds."""

    model: MakeModel
    federation: Federation
    folder: Path
    shape: tuple[int, int, int]
    classes: int
    model_name: str = ""
    defense: str = "none"
    validation: Callable[[], Batch] | None = None
    strategy: Callable[[], Strategy] | None = None
    captures: Collection[int] | None = None
    checkpoints: Collection[int] = ()
    min_replies: int = 1
    timeout: float = 600.0
    wait: float = 600.0
    last: int | None = None

    @property
    def rounds(self) -> int:
        return self.federation.rounds if self.last is None else min(self.last, self.federation.rounds)

    def main(self, grid: Grid, context: Context) -> None:
        model = parse_defense(self.defense, "server_app").model(self.model())
        files = ServerFiles(self.folder)
        momentum = self.strategy is None and self.federation.method == "fedsgd" and self.federation.momentum > 0
        done, velocity = files.resume(model, momentum)
        if done >= self.rounds:
            return
        inner = self.strategy() if self.strategy else FederationStrategy(self.federation, model, velocity, self.wait)
        server = CuriousServer(
            inner,
            self.folder,
            self._protocol(model),
            rounds=self.captures,
            min_replies=self.min_replies,
            wait=self.wait,
            done=done,
        )
        server.start(
            grid,
            record_of(model.state_dict()),
            num_rounds=self.rounds - done,
            timeout=self.timeout,
            evaluate_fn=RoundEnd(self, server, model, files),
        )

    def _protocol(self, model: nn.Module) -> Protocol:
        def training(round: int, examples: int) -> LocalTraining:
            """As the server knows it: clients shuffle their pictures."""
            found = self.federation.local_training(examples, self.federation.progress(round))
            minibatches = found.batch_size is not None and found.batch_size < examples
            return replace(found, order="unknown") if minibatches else found

        return Protocol(
            training=training,
            shape=self.shape,
            classes=self.classes,
            normalization=_normalization(model),
            model=self.model_name,
            defense=self.defense,
            trainable=[name for name, p in model.named_parameters() if p.requires_grad],
        )


class RoundEnd:
    """Flower's central evaluation, called when a round is over: accuracy, a line of the curve, a checkpoint."""

    def __init__(self, served: FlowerServer, server: CuriousServer, model: nn.Module, files: ServerFiles) -> None:
        self.served, self.server, self.model, self.files = served, server, model, files
        self.began = time.monotonic()

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 0:  # before the first
            return None
        round, last = server_round + self.server.done, self.server.last
        self.model.load_state_dict(tensors_of(arrays))
        validation = self.served.validation
        score = None if validation is None else accuracy(self.model, validation())
        velocity = getattr(self.server.inner, "velocity", {})
        self.files.add(
            RoundResult(
                round=round,
                loss=last["metrics"].get(LOSS, math.nan),
                accuracy=score,
                seconds=time.monotonic() - self.began,
                dropped=len(last["left_out"]),
                names=tuple(last["left_out"]),
                void=last["void"],
            )
        )
        self.files.keep(round, self.model.state_dict(), velocity, self.served.checkpoints)
        self.began = time.monotonic()
        return None if score is None else MetricRecord({"accuracy": score})


def server_app(
    model: MakeModel,
    federation: Federation,
    *,
    folder: str | Path,
    shape: tuple[int, int, int],
    classes: int,
    model_name: str = "",
    defense: str = "none",
    validation: Callable[[], Batch] | None = None,
    strategy: Callable[[], Strategy] | None = None,
    captures: Iterable[int] | None = None,
    checkpoints: Iterable[int] = (),
    min_replies: int = 1,
    timeout: float = 600.0,
    wait: float = 600.0,
    last: int | None = None,
) -> ServerApp:
    """A server that records what it sees into `folder`, and goes on from the last round there.

    `strategy` makes any Flower strategy; without one the rounds are those of the local engine. A strategy with a state
    of its own, such as FedAdam's moments, begins a restart without it. `last` ends the federation after this round.
    """
    with private_files():
        Path(folder).mkdir(parents=True, exist_ok=True)
    served = FlowerServer(
        model=model,
        federation=federation,
        folder=Path(folder),
        shape=shape,
        classes=classes,
        model_name=model_name,
        defense=defense,
        validation=validation,
        strategy=strategy,
        captures=None if captures is None else frozenset(captures),
        checkpoints=frozenset(checkpoints),
        min_replies=min_replies,
        timeout=timeout,
        wait=wait,
        last=last,
    )
    app = ServerApp()
    app.main()(served.main)
    return app


def _normalization(model: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    for layer in model.modules():
        if isinstance(layer, Normalize):
            return tuple(layer.mean.flatten().tolist()), tuple(layer.std.flatten().tolist())
    return None
