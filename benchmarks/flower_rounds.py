"""Rounds a second of one federation by the local engine and by a Flower simulation, in one run.

    OMP_NUM_THREADS=1 python benchmarks/flower_rounds.py
    OMP_NUM_THREADS=1 python benchmarks/flower_rounds.py --clients 20 --rounds 10 --model lenet

`whole` is from nothing to the last round, with the start of Flower and Ray; `warm` are the rounds after the first. Both
end with the same weights up to float32 on the wire, and `apart` is by how much they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from gradveil import __version__, data
from gradveil.core.defense import Defense
from gradveil.core.types import Batch
from gradveil.flower import train as flower
from gradveil.models import MODELS
from gradveil.train import federated as local
from gradveil.train.state import Trained
from gradveil.train.settings import Federation

SIZE = 16


def main() -> None:
    args = arguments()
    training, validation = data.load("digits", split="train", size=SIZE), data.load("digits", size=SIZE)
    options = {"classes": 10, "shape": training.shape, "mean": training.mean, "std": training.std}
    federation = Federation(clients=args.clients, rounds=args.rounds, rate=0.1)
    pictures = Batch(training.images, training.targets), Batch(validation.images, validation.targets)
    here, local_speed = timed(lambda: local.train(MODELS[args.model](**options), *pictures, federation, Defense()))
    with tempfile.TemporaryDirectory() as folder:
        there, flower_speed = timed(
            lambda: flower.train(args.model, options, *pictures, federation, "none", folder=Path(folder) / "run")
        )
    print(json.dumps(report(args, local_speed, flower_speed, apart(here, there)), indent=2))


def timed(run) -> tuple[Trained, dict[str, float]]:
    began = time.perf_counter()
    trained = run()
    whole = len(trained.curve) / (time.perf_counter() - began)
    later = trained.curve[1:]
    return trained, {"whole": whole, "warm": len(later) / sum(one.seconds for one in later)}


def apart(one: Trained, other: Trained) -> float:
    theirs = other.model.state_dict()
    return max(float((x - theirs[name]).abs().max()) for name, x in one.model.state_dict().items())


def report(args: argparse.Namespace, local_speed: dict, flower_speed: dict, difference: float) -> dict[str, Any]:
    return {
        "clients": args.clients,
        "rounds": args.rounds,
        "model": args.model,
        "local": local_speed,
        "flower": flower_speed,
        "ratio": {key: local_speed[key] / flower_speed[key] for key in local_speed},
        "apart": difference,
        "load": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "gradveil": __version__,
        "torch": torch.__version__,
        "machine": platform.processor() or platform.machine(),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="mlp", choices=sorted(MODELS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
