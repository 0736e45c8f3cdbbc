"""ATS, figure 7: accuracy of ResNet20-4 on CIFAR-100 while ten participants train it, without and with the policy.

    PYTHONPATH=src python3 papers/ats/federated.py --root DATA --out OUT --epochs 200 --device cuda --precision bf16

Ten participants with equal shares; SGD with Nesterov momentum 0.9, weight decay 5e-4, crops and flips, the rate falls
tenfold at 3/8, 5/8 and 7/8. The policy is the hybrid 3-1-7+43-18-18 of the authors' library, drawn anew for every
picture. A step takes 32 pictures of each participant, 320 in all, at rate 0.2; theirs takes 128 at 0.1. One line of
JSON for every accuracy goes to OUT/curves.jsonl as soon as it is known. The same command goes on where it stopped,
also after `--limit-seconds`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from gradveil.core.defense import Defense
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.defenses import DEFENSES
from gradveil.experiment.provenance import device_name
from gradveil.models import MODELS
from gradveil.train.federated import train_federation
from gradveil.train.state import RoundResult
from gradveil.train.settings import Federation, evenly

CLIENTS = 10
PAPER = {"none": 76.88, "hybrid": 76.89}  # percent, table 2, rows Standard and [15]
POLICY = "3-1-7+43-18-18"


class OutOfTime(KeyboardInterrupt):
    """Training keeps its state, as after Ctrl-C."""


def main() -> None:
    args = arguments()
    begin = time.monotonic()
    training, test = (load("cifar100", root=args.root, split=split) for split in ("train", "test"))
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.defense or PAPER:
        try:
            trained(name, training, test, args, begin)
        except OutOfTime:
            print(json.dumps({"defense": name, "stopped": "out of time, the same command goes on"}), flush=True)
            return


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="of one participant and step")
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--every", type=int, default=1, help="epochs between accuracies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="resnet20-4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=("float32", "tf32", "bf16"))
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--defense", action="append", choices=list(PAPER), help="both if not given")
    return parser.parse_args()


def defense_of(name: str) -> Defense:
    return DEFENSES["none"]() if name == "none" else DEFENSES["ats"](policy=POLICY, library="ats-code")


def trained(name: str, training: Dataset, test: Dataset, args: argparse.Namespace, begin: float) -> None:
    each = max(1, len(training) // (CLIENTS * args.batch_size))  # rounds of an epoch
    federation = Federation(
        clients=CLIENTS,
        rounds=args.epochs * each,
        method="fedsgd",
        batch_size=args.batch_size,
        rate=args.rate,
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
        decay=True,
        augment=True,
        batchnorm="batch-shared",
        seed=args.seed,
    )
    constants = {"mean": training.mean, "std": training.std}
    model = MODELS[args.model](classes=training.targets.shape[1], shape=training.shape, **constants)
    curve = Curve(args.out / "curves.jsonl", name, each, args, begin)
    train_federation(
        model,
        Batch(training.images, training.targets),
        Batch(test.images, test.targets),
        federation,
        defense_of(name),
        folder=args.out / name,
        checkpoints=evenly(4, federation.rounds),
        evaluate_every=each * args.every,
        device=args.device,
        precision=args.precision,
        graphs=not args.no_graphs,
        on_round=curve.heard,
        settings={"model": args.model},
    )


class Curve:
    """One line for every accuracy, with the mean loss since the last one."""

    def __init__(self, path: Path, name: str, each: int, args: argparse.Namespace, begin: float) -> None:
        self.path, self.name, self.each, self.args, self.begin = path, name, each, args, begin
        self.losses: list[float] = []
        self.seconds = 0.0

    def heard(self, result: RoundResult) -> None:
        self.losses.append(result.loss)
        self.seconds += result.seconds
        if result.accuracy is None:
            return
        report: dict[str, Any] = {
            "defense": self.name,
            "epoch": result.round / self.each,
            "round": result.round,
            "accuracy": result.accuracy,
            "loss": sum(self.losses) / len(self.losses),
            "seconds": round(self.seconds, 3),
            "paper": PAPER[self.name],
            "device": device_name(self.args.device),
            "precision": self.args.precision,
        }
        self.losses, self.seconds = [], 0.0
        with open(self.path, "a") as file:
            file.write(json.dumps(report) + "\n")
        print(json.dumps(report), flush=True)
        if time.monotonic() - self.begin > self.args.limit_seconds:
            raise OutOfTime


if __name__ == "__main__":
    main()
