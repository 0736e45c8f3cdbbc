"""LODA's tables 1, 2, 5, 6 and 7 at the size that one GPU does in minutes; a JSON line per cell, written at once.

    PYTHONPATH=src python3 papers/loda/table.py --root DATA --extractor resnet18:extractor.safetensors --out OUT \\
        --device cuda accuracy readings ablation cross attacks

Cells that OUT/STAGE.jsonl holds already are left out: the same command goes on where it was ended, and stages may run
side by side in processes of their own. See README.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leaks import attacks
from study import Study
from training import Cells, accuracies, cross
from weights import ablation, readings

from gradveil.experiment.provenance import device_name, now

STAGES: dict[str, Callable[[Study], Cells]] = {
    "accuracy": accuracies,
    "readings": readings,
    "ablation": ablation,
    "cross": cross,
    "attacks": attacks,
}


def main() -> None:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    study = Study(asked)
    with study.compute.active():
        for stage in asked.stages or STAGES:
            path = asked.out / f"{stage}.jsonl"
            for name, cell in STAGES[stage](study).items():
                if name not in done(path) and asked.only in name:
                    tell(path, {"stage": stage, "cell": name}, cell, study)


def tell(path: Path, head: dict[str, Any], cell: Callable[[], dict[str, Any]], study: Study) -> None:
    begin = time.perf_counter()
    row = head | cell() | {"seconds": round(time.perf_counter() - begin, 1)}
    row |= {"private_pictures": study.asked.pictures, "device": device_name(study.compute.device), "date": now()}
    row |= {"precision": study.asked.precision}
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(short(row)), flush=True)


def short(row: Any) -> Any:
    """Without the long lists."""
    if not isinstance(row, dict):
        return row
    return {name: short(value) for name, value in row.items() if name not in ("each", "device", "date")}


def done(path: Path) -> set[str]:
    lines = path.read_text().splitlines() if path.is_file() else []
    return {json.loads(line)["cell"] for line in lines}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}; all if not given")
    parser.add_argument("--only", default="", help="cells whose name holds this")
    parser.add_argument("--root", default="data", help="folder of CIFAR-10, of CIFAR-100 and of lpips_alex.npz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--extractor", required=True, help="MODEL:FILE.safetensors")
    parser.add_argument("--public", default="cifar100", help="a set that encodings start from")
    parser.add_argument("--classes", type=int, help="of CIFAR-100, the first so many; all if not given")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", choices=("float32", "tf32", "bf16"), help="bf16: of encodings")
    parser.add_argument("--seed", type=int, default=0)
    add_training(parser.add_argument_group("accuracy, cross, ablation"))
    add_attacks(parser.add_argument_group("attacks"))
    asked = parser.parse_args()
    if unknown := set(asked.stages) - set(STAGES):
        parser.error(f"no stage {' '.join(unknown)}, there are {', '.join(STAGES)}")
    return asked


def add_training(group: Any) -> None:
    group.add_argument("--pictures", type=int, default=5000, help="private ones, the first of the training set")
    group.add_argument("--test", type=int, help="test pictures; all if not given")
    group.add_argument("--epochs", type=int, default=30)
    group.add_argument("--rate", type=float, default=0.1)
    group.add_argument("--batch-size", type=int, default=128)
    group.add_argument("--encode-steps", type=int, default=500)
    group.add_argument("--networks", nargs="+", default=["vgg16"], choices=("resnet34", "vgg16", "densenet121"))
    group.add_argument("--ablated", type=int, default=1024, help="pictures that are encoded for each weight c")
    group.add_argument("--ablate-accuracy", action="store_true", help="encode all, and train on them")
    group.add_argument("--readings", type=int, default=256, help="pictures for each reading of equation 4")


def add_attacks(group: Any) -> None:
    group.add_argument("--model", default="resnet18")
    group.add_argument("--weights", type=Path, help="of the model; as it is before training if not given")
    group.add_argument("--images", type=int, default=32, help="pictures, one per client")
    group.add_argument("--mixed", type=int, default=8, help="pictures of the client that mixes them")
    group.add_argument("--rounds", type=int, default=20, help="of that client; the paper has 50")
    group.add_argument("--steps", type=int, default=800)
    group.add_argument("--tv", type=float, nargs="+", default=[1e-4], help="each is tried on each update")
    group.add_argument("--tv-pruned", type=float, nargs="+", default=[1e-3])
    group.add_argument("--joint", type=int, default=0, help="steps that go on from decoded mixup; 0: none")


if __name__ == "__main__":
    main()
