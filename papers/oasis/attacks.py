"""The attacks of OASIS (Jeter et al., 2024, fig. 3, 4 and 13) on CIFAR-100, undefended: neurons by batch size.

    PYTHONPATH=src python3 papers/oasis/attacks.py --root DATA --out OUT/attacks.jsonl
    PYTHONPATH=src python3 papers/oasis/attacks.py --root DATA --attack cah --neurons 300 --batch-sizes 8 --groups 16

One JSON line per attack, number of neurons and batch size: mean and median PSNR in dB, the share of the pictures that
are exact (above 100 dB), and every picture's own value, which is what the box plots show. `--setting paper` is the
published code's: behind the normalization, bins of an assumed distribution, scale 0.95; `--setting ours` is this
project's default. `DATA` holds CIFAR-100, or is a zip of ImageNet pictures of one size, such as 224 pixels;
`photos` takes the built-in photographs instead. The last 256 pictures of a shuffled order are public, or those that the
largest batch leaves.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.attacks.cah import cah
from gradveil.attacks.linear_model import linear_model
from gradveil.attacks.rtf import rtf
from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.normalize import Normalize

EXACT = 100.0  # dB
PUBLIC = 256
NEXT = "flatten"  # the layer behind the normalization


def main() -> None:
    args = arguments()
    data = pictures(args.root)
    order = torch.randperm(len(data.images), generator=Seed(args.seed).at("order").rng())
    for attack in args.attack:
        for batch in args.batch_sizes:
            for neurons in args.neurons if attack != "linear-model" else [0]:
                report = measured(attack, neurons, batch, data, order, args)
                write(report, args.out)
                print(
                    json.dumps({key: value for key, value in report.items() if key != "per_picture_psnr"}), flush=True
                )


def pictures(root: str) -> Dataset:
    if root == "photos":
        return load("photos", size=32)
    return load("imagenet" if root.endswith(".zip") else "cifar100", root=root)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100, a .zip of ImageNet pictures, or photos")
    parser.add_argument("--attack", nargs="+", default=["rtf", "cah"], choices=["rtf", "cah", "linear-model"])
    parser.add_argument("--setting", default="paper", choices=["paper", "ours"])
    parser.add_argument("--neurons", nargs="+", type=int, default=[100, 200, 300, 400, 500, 600, 700, 800, 900])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--groups", type=int, default=8, help="batches per setting")
    parser.add_argument("--functional", default="fourier:32", help="of rtf")
    parser.add_argument("--precision", default="float32", choices=["float32", "float64"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def attack_of(name: str, neurons: int, batch: int, args: argparse.Namespace) -> Attack:
    """As the published code has it, or as it is here."""
    if name == "linear-model":
        return linear_model(refine=0) if args.setting == "paper" else linear_model()
    if name == "rtf":
        paper: dict[str, Any] = {
            "bins": "laplace" if "fourier" in args.functional else "gaussian",
            "connection": "linear",
            "at": NEXT,
        }
        return rtf(neurons=neurons, functional=args.functional, **(paper if args.setting == "paper" else {}))
    given: dict[str, Any] = {"scale": 0.95, "connection": "add", "at": NEXT}
    return cah(neurons=neurons, examples=batch, **(given if args.setting == "paper" else {}))


def measured(
    name: str, neurons: int, batch: int, data: Dataset, order: Tensor, args: argparse.Namespace
) -> dict[str, Any]:
    started = time.monotonic()
    attack = attack_of(name, neurons, batch, args)
    values = torch.cat([psnr(attack, scenario, args.seed) for scenario in scenarios(data, order, batch, args)])
    return {
        "attack": name,
        "setting": args.setting,
        "neurons": neurons,
        "batch_size": batch,
        "functional": args.functional if name == "rtf" else "",
        "precision": args.precision,
        "pixels": data.shape[-1],
        "pictures": len(values),
        "mean_psnr": float(values.mean()),
        "median_psnr": float(values.median()),
        "exact": float((values > EXACT).double().mean()),
        "seconds": time.monotonic() - started,
        "per_picture_psnr": [round(value, 2) for value in values.tolist()],
    }


def scenarios(data: Dataset, order: Tensor, batch: int, args: argparse.Namespace) -> Iterator[Scenario]:
    """One batch after the other, each at a fresh linear model."""
    to = {"device": args.device, "dtype": torch.float64 if args.precision == "float64" else torch.float32}
    kept = min(PUBLIC, len(order) - max(args.batch_sizes))
    public = Batch(*(x[order[-kept:]].to(**to) for x in (data.images, data.targets)))
    for group in range(min(args.groups, (len(order) - kept) // batch)):
        private = Batch(*(x[order[group * batch :][:batch]][None].to(**to) for x in (data.images, data.targets)))
        yield Scenario(
            name="oasis",
            model=logistic(data, group).to(**to),
            private=private,
            names=(f"batch-{group}",),
            threat=ThreatModel(may_plant=True),
            public=public,
        )


def logistic(data: Dataset, seed: int) -> nn.Module:
    """Normalization and one linear layer: nothing else stands behind the imprint in the attacks' own measurements."""
    layer = nn.Linear(data.images[0].numel(), data.targets.shape[1])
    reach = data.images[0].numel() ** -0.5
    for number, parameter in enumerate(layer.parameters()):
        drawn = torch.rand(parameter.shape, generator=Seed(seed).at("model", number).rng())
        parameter.data.copy_((2 * drawn - 1) * reach)
    return nn.Sequential(OrderedDict(normalize=Normalize(data.mean, data.std), flatten=nn.Flatten(), fc=layer))


def psnr(attack: Attack, scenario: Scenario, seed: int) -> Tensor:
    """Of every private picture; what was not found counts as mid-gray."""
    seen, truth = observe(scenario, Defense(), attack, Seed(seed).at(scenario.names[0]))
    got = attack.reconstruct(seen, Seed(seed))
    shown = align(got.images, truth.private.images, got.found).images
    return peak_signal_to_noise(shown, truth.private.images)[0].double().cpu()


def write(report: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a") as file:
            file.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
