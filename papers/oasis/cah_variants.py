"""Why CAH reaches other decibels here than in OASIS (Jeter et al., 2024, fig. 4): its rows and readings, side by side.

    PYTHONPATH=src OMP_NUM_THREADS=1 python3 papers/oasis/cah_variants.py --root DATA --out results/cah-variants.jsonl

The layer's gradient is written down rather than computed by the product, in float32: dW = A' X and db = A' 1, where A
holds the push of each picture on each unit that it activates. Rows: `halves` as the attack's paper has them (half
negative, the same sizes times a scale in the other half), `signed` as the code that OASIS names had them until 2024
(sizes of either sign, times the scale), `signed, minus` the same with its notebook's negative scale. Inputs: normalized
or pixels. Readings: `all` units, each picture by its best one (an upper bound, nobody can choose so), or as many as
there are pictures, `strongest` or, as that code does, of the `smallest` mean weight gradient.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.core.seeds import Seed, normal, uniform
from gradveil.data import Dataset, load
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise

ROWS = ("halves", "signed", "signed, minus")
SIGMA = 0.5
TINY = 1e-12


def main() -> None:
    args = arguments()
    data = load("cifar100", root=args.root, split="test")
    for size, batches in zip(args.batch_sizes, args.batches, strict=True):
        for neurons in args.neurons:
            for rows in args.rows:
                for inputs in args.inputs:
                    tell(report_of(data, size, batches, neurons, rows, inputs, args.scale), args.out)


def report_of(
    data: Dataset, size: int, batches: int, neurons: int, rows: str, inputs: str, scale: float
) -> dict[str, Any]:
    head = {"rows": rows, "inputs": inputs, "scale": scale, "neurons": neurons, "batch_size": size, "batches": batches}
    found = [measured(data, size, batch, neurons, rows, inputs, scale) for batch in range(batches)]
    means = {name: sum(one[name] for one in found) / batches for name in found[0]}
    spread = torch.tensor([one["smallest"] for one in found], dtype=torch.float64).std().item()
    return head | {name: round(mean, 4) for name, mean in means.items()} | {"smallest_spread": round(spread, 2)}


def measured(
    data: Dataset, size: int, batch: int, neurons: int, rows: str, inputs: str, scale: float
) -> dict[str, float]:
    """One batch: shares of units and pictures that are alone, and the mean PSNR of each reading."""
    seed, here = Seed(0).at("cah", size, batch), slice(batch * size, (batch + 1) * size)
    pictures, labels = data.images[here].flatten(1), data.targets[here]
    mean, std = (torch.tensor(c).repeat_interleave(data.images[0, 0].numel()) for c in (data.mean, data.std))
    standard = (pictures - mean) / std
    seen = standard if inputs == "normalized" else pictures
    hidden = seen @ weights(rows, neurons, seen.shape[1], scale, seed).T
    active = hidden > 0
    push = active * pushes(standard + hidden.clamp_min(0).mean(1, keepdim=True), labels, seed)[:, None] / neurons
    shift, slope = push.sum(0), push.T @ seen
    there = shift.abs() > TINY
    shown = slope[there] / shift[there, None]
    shown = shown * std + mean if inputs == "normalized" else shown
    alone = active.sum(0) == 1
    orders = {"smallest": slope[there].mean(1).abs().neg(), "strongest": shift[there].abs()}
    kept = {name: shown[order.topk(min(size, len(order))).indices] for name, order in orders.items()} | {"all": shown}
    read = {name: scored(some, pictures) for name, some in kept.items()}
    return read | {"units_alone": share(alone), "pictures_alone": share(active[:, alone].any(1))}


def weights(rows: str, units: int, pixels: int, scale: float, seed: Seed) -> Tensor:
    """Pixels are divided into two halves anew for every unit."""
    sizes = SIGMA * normal((units, pixels // 2), seed.at("sizes").rng(), torch.zeros(()))
    first = -sizes.abs() if rows == "halves" else sizes
    second = scale * sizes if rows == "signed" else -scale * first
    order = uniform((units, pixels), seed.at("halves").rng(), torch.zeros(())).argsort(1)
    return torch.zeros(units, pixels).scatter(1, order, torch.cat([first, second], 1))


def pushes(inputs: Tensor, labels: Tensor, seed: Seed) -> Tensor:
    """What a linear model behind the layer, which adds the mean of its units to every pixel, pushes back."""
    pixels, classes = inputs.shape[1], labels.shape[1]
    head = (2 * uniform((classes, pixels), seed.at("head").rng(), inputs) - 1) * pixels**-0.5
    return (((inputs @ head.T).softmax(-1) - labels) @ head).sum(1) / len(labels)


def scored(shown: Tensor, pictures: Tensor) -> float:
    """What is not found counts as mid-gray."""
    got, truth = (x.view(-1, 1, 1, x.shape[1]) for x in (shown.clamp(0, 1), pictures))
    return float(peak_signal_to_noise(align(got, truth).images, truth).mean())


def share(of: Tensor) -> float:
    return float(of.double().mean())


def tell(line: dict[str, Any], out: Path | None) -> None:
    print(json.dumps(line), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=ROWS)
    parser.add_argument("--inputs", nargs="+", default=["normalized", "pixels"], choices=["normalized", "pixels"])
    parser.add_argument("--scale", type=float, default=0.95)
    parser.add_argument("--neurons", nargs="+", type=int, default=[300, 600])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--batches", nargs="+", type=int, default=[30, 6])
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
