"""Rounds per second of federated training: `python benchmarks/federation.py [--device cuda] [--model convnet8]`.

Random pictures of CIFAR's size; each way of computing runs the same federation, so that rounds compare. Prints one JSON
line per method and way. `fused` is one pass for all clients, `stacked` a stack of clients, `loop` client by client.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from gradveil.core.compute import pick_device
from gradveil.core.types import Batch
from gradveil.defenses import DEFENSES
from gradveil.experiment.provenance import device_name, now
from gradveil.models import MODELS
from gradveil.train.federated import train_federation
from gradveil.train.settings import Federation

WAYS: dict[str, dict[str, Any]] = {
    "fused": {"fused": True},
    "fused, no graph": {"fused": True, "graphs": False},
    "stacked": {"fused": False, "chunk": 32},
    "loop": {"fused": False, "chunk": 1},
}


def main() -> None:
    args = arguments()
    device = pick_device(args.device)
    for method in args.methods:
        for way in WAYS:
            if way.startswith("fused") and method != "fedsgd":
                continue
            if way == "fused, no graph" and device == "cpu":
                continue
            print(json.dumps(measured(method, way, device, args)), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--precision", default="float32", choices=("float32", "tf32", "bf16"))
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--pictures", type=int, default=64, help="of each client")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("methods", nargs="*", default=["fedsgd", "fedavg"])
    return parser.parse_args()


def measured(method: Any, way: str, device: str, args: argparse.Namespace) -> dict[str, Any]:
    """The first half of the rounds is left out: libraries choose their algorithms, a graph is captured."""
    rng = torch.Generator().manual_seed(0)
    count = args.clients * args.pictures
    images, labels = torch.rand(count, 3, 32, 32, generator=rng), torch.eye(10)[torch.arange(count) % 10]
    settings: dict[str, Any] = {"batchnorm": "batch-shared", "batch_size": args.batch_size, "rate": 0.01}
    federation = Federation(clients=args.clients, rounds=2 * args.rounds, method=method, **settings)
    ends: list[float] = []
    train_federation(
        MODELS[args.model](classes=10, shape=(3, 32, 32)),
        Batch(images, labels),
        Batch(images[:10], labels[:10]),
        federation,
        DEFENSES["none"](),
        device=device,
        precision=args.precision,
        evaluate_every=args.rounds,
        on_round=lambda _: ends.append(time.perf_counter()),
        **WAYS[way],
    )
    rate = args.rounds / (ends[-1] - ends[args.rounds - 1])
    fed = args.clients * (args.batch_size if method == "fedsgd" else args.pictures)
    return {
        "method": method,
        "way": way,
        "model": args.model,
        "clients": args.clients,
        "rounds_per_second": round(rate, 2),
        "pictures_per_second": round(rate * fed),
        "precision": args.precision,
        "device": device_name(device),
        "when": now(),
    }


if __name__ == "__main__":
    main()
