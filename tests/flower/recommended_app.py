"""A Flower simulation whose clients deploy what a recommendation names, by one line. A process of its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

import gradveil
import gradveil.flower
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch
from gradveil.flower.arrays import record_of
from gradveil.flower.simulation import backend
from gradveil.recommend.settings import RecommendSettings
from gradveil.tradeoff.split import StudySplit
from gradveil.tradeoff.study import load_study

SETTINGS = RecommendSettings(
    data_options={"count": 480, "size": 12},
    defenses=("dpsgd", "sign"),
    named_at_most=0.1,
    spare=100.0,
    lineup=201,
    rounds=4,
    clients=4,
    per_round=2,
    seeds=2,
    images=8,
    stages=(0.5, 1.0),
    attacks=("invertgrad:steps=20,restarts=1",),
)
CLIENTS = 48


@cache
def study() -> tuple[StudySplit, tuple[nn.Module, ...]]:
    return load_study(SETTINGS.study())


def model() -> nn.Module:
    """The one that the recommendation was made for, before training."""
    return study()[1][0]


def picture_of(client: int) -> Batch:
    """One that the recommendation has not seen."""
    return Batch(*(x[client : client + 1] for x in study()[0].validation))


def training() -> LocalTraining:
    return SETTINGS.study().federation(0).local_training(1, 0.0)


def client_app(run: str) -> ClientApp:
    app = ClientApp(mods=[gradveil.veil(f"recommended:{run}", trainable=model(), seed=0)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])  # type: ignore[arg-type]
        arrays = gradveil.flower.local_update(model(), message, picture_of(number), context, training())
        content: dict[str, Any] = {"arrays": arrays, "metrics": MetricRecord({"num-examples": 1, "client": number})}
        return Message(RecordDict(content), reply_to=message)

    return app


def server_app(folder: str) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        images, labels = picture_of(0)
        protocol = gradveil.flower.Protocol(
            training=training(),
            shape=tuple(images.shape[1:]),
            classes=labels.shape[1],
            defense="recommended",
            trainable=model(),
        )
        inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        strategy = gradveil.CuriousServer(inner, folder, protocol)
        strategy.start(grid, record_of(model().state_dict()), num_rounds=1)

    return app


def main(run: str, folder: str, temporary: str) -> None:
    from flwr.simulation import run_simulation

    settings: Any = backend(2, Path(temporary), Path(folder) / "spilled")
    run_simulation(server_app(folder), client_app(run), CLIENTS, backend_config=settings)
