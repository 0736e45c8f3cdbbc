"""Which reading of LODA's equation 4 gives the numbers of its tables 1, 5 and 6? Not run yet: it needs a GPU.

The paper leaves open whether squares are summed or averaged, and whether pixels are in [0, 1] or normalized. For each
of the four readings and each weight c of tables 5 and 6 this encodes pictures of CIFAR-10 from an extractor trained on
CIFAR-100, and writes the PSNR between pictures and encodings (the tables give it for encodings that an attack has read
off gradients, which can only be farther) and the accuracy on the test pictures of a ResNet18 trained on the encodings.

    gradveil train-extractor cifar100 --data-option root=DATA --epochs 200 --out extractor.safetensors --device cuda
    python papers/loda/calibrate.py --data DATA --extractor resnet18:extractor.safetensors --device cuda
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import torch

from gradveil.compute import Compute, pick_device
from gradveil.data.cifar import cifar10
from gradveil.defenses.loda import Loda
from gradveil.fit import accuracy, fit
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS
from gradveil.types import Batch

LAYERS = {"table 5": "first5", "table 6": "all"}
WEIGHTS = (10.0, 20.0, 30.0, 40.0, 50.0)
PAPER = {  # accuracy in %, mean PSNR in dB of what the attack recovers
    "table 5": {10: (93.02, 6.39), 20: (89.50, 5.77), 30: (83.46, 5.73), 40: (78.48, 5.83), 50: (71.86, 5.82)},
    "table 6": {10: (93.95, 9.72), 20: (93.49, 8.07), 30: (91.78, 7.41), 40: (89.40, 6.55), 50: (87.78, 6.05)},
}


def main() -> None:
    asked = options()
    compute = Compute(device=pick_device(asked.device), precision=asked.precision)
    private, test = (cifar10(root=asked.data, split=split, limit=asked.pictures) for split in ("train", "test"))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    done = {tuple(json.loads(line)["cell"]) for line in lines(asked.out)}
    for cell in product(LAYERS, ("sum", "mean"), ("unit", "normalized"), WEIGHTS):
        if cell in done:
            continue
        with compute.active():
            row = measured(cell, private, test, asked, compute.device)
        with asked.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data", help="folder of CIFAR-10")
    parser.add_argument("--public", default="cifar100", help="a set whose pictures encodings start from")
    parser.add_argument("--extractor", required=True)
    parser.add_argument("--pictures", type=int, default=None, help="of each part; all if not given")
    parser.add_argument("--epochs", type=int, default=200, help="of the model that is trained on encodings; 0: none")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", choices=("float32", "tf32"))
    parser.add_argument("--out", type=Path, default=Path("papers/loda/results/calibration.jsonl"))
    return parser.parse_args()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


def measured(cell: tuple[str, str, str, float], private, test, asked: argparse.Namespace, device: str) -> dict:
    table, reduce, units, c = cell
    reading = {"reduce": reduce, "units": units, "layers": LAYERS[table], "c": c}
    defense = Loda(extractor=asked.extractor, public=asked.public, starts="drawn", **reading)
    encodings = torch.cat([defense.encode(part.to(device)).cpu() for part in private.images.split(4096)])
    row = {"cell": list(cell), "psnr": peak_signal_to_noise(encodings, private.images).mean().item()}
    row |= {"paper_accuracy": PAPER[table][int(c)][0], "paper_psnr": PAPER[table][int(c)][1]}
    if asked.epochs:
        model = MODELS["resnet18"](classes=10, shape=(3, 32, 32), mean=private.mean, std=private.std)
        fit(model, Batch(encodings, private.targets), epochs=asked.epochs, device=device, bf16=device != "cpu")
        row["accuracy"] = 100 * accuracy(model, Batch(test.images, test.targets))
    return row


if __name__ == "__main__":
    main()
