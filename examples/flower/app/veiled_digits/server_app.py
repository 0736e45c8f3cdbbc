"""The server: Flower's FedAvg, watched. It keeps a capture of every round and goes on from its last checkpoint."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from gradveil.flower import FlowerServer
from gradveil.train.settings import Federation
from veiled_digits.task import CLASSES, PICTURES, RATE, SHAPE, held_out, make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, rounds = int(config["nodes"]), int(config["num-server-rounds"])
    FlowerServer(
        model=make_model,
        federation=Federation(clients=nodes, rounds=rounds, batch_size=PICTURES, rate=RATE),
        strategy=lambda: FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        folder=Path(str(config["folder"])),
        shape=SHAPE,
        classes=CLASSES,
        model_name="mlp",
        defense=str(config["defense"]),
        validation=held_out,
        timeout=float(config["round-timeout"]),
        wait=120.0,
    ).main(grid, context)
