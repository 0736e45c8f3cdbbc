"""OASIS against servers that choose what the malicious layer measures, and against one that takes mixtures apart.

    PYTHONPATH=src OMP_NUM_THREADS=1 python3 papers/oasis/adaptive.py --root DATA --out results/adaptive.jsonl

RTF with a functional that a quarter turn leaves alone (the mean), as the paper has it, and with some that it does not;
`unmix` is RTF by the mean with the transforms known. `cah` is tuned for the private pictures, `cah-copies` for all that
are fed. `single-layer` plants nothing: the model is one linear layer and no label comes twice (section IV-D),
`single-layer-unmix` the same with the transforms known. DATA holds CIFAR-100. Neurons as in the paper: for batches of 8
and 64 RTF 500 and 600, CAH 300 and 600. A picture counts as exact from 60 dB on; each one's PSNR is in the line.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.attacks import ATTACKS
from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.interval import mean_interval, rate_interval
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.defenses.oasis import Oasis
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from

DEFENSES = ("none", "major", "minor", "shear", "hflip", "vflip", "major+shear", "major+hflip")
SERVERS = (
    "mean",
    "fourier:1",
    "fourier:32",
    "random",
    "unmix",
    "cah",
    "cah-copies",
    "single-layer",
    "single-layer-unmix",
)
ROUGHLY = 0.02  # in a single layer the copies weigh only nearly alike
NEURONS = {8: 500, 64: 600}
TRAPS = {8: 300, 64: 600}
PUBLIC = slice(9000, 10000)
EXACT = 60.0  # dB


def main() -> None:
    args = arguments()
    data = load("cifar100", root=args.root, split="test")
    for size, batches, fewer in zip((8, 64), args.batches, args.unmixed, strict=True):
        for transforms in args.defenses:
            for server in args.servers:
                count = fewer if server.endswith("unmix") else batches
                tell(cell(data, transforms, server, size, count), args.out)


def cell(data: Dataset, transforms: str, server: str, size: int, batches: int) -> dict[str, Any]:
    """One defense against one server, batch after batch."""
    start = time.perf_counter()
    defense = Defense() if transforms == "none" else Oasis(transforms=transforms)
    attack, model = attack_of(server, size, defense.copies), model_of(server, data)
    order = distinct(data) if server.startswith("single-layer") else torch.arange(len(data.images))
    picked = [order[batch * size : (batch + 1) * size] for batch in range(batches)]
    scores = [score for some in picked for score in recovered(data, some, model, defense, attack)]
    head = {"transforms": transforms, "server": server, "size": size, "batches": batches, "pictures": len(scores)}
    return head | about(scores) | {"seconds": round(time.perf_counter() - start, 1)}


def model_of(server: str, data: Dataset) -> nn.Module:
    """Untrained."""
    with weights_from(0):
        classes, shape = data.targets.shape[1], data.shape
        if server.startswith("single-layer"):
            layers = [nn.Flatten(), nn.Linear(math.prod(shape), classes)]
            return nn.Sequential(Normalize(data.mean, data.std), *layers).eval()
        return MODELS["lenet"](classes=classes, shape=shape, mean=data.mean, std=data.std).eval()


def distinct(data: Dataset) -> Tensor:
    """The pictures in an order in which no label comes twice within a hundred: the first of each class, and so on."""
    labels = data.targets.argmax(-1)
    turn = torch.zeros_like(labels)
    for label in labels.unique():
        turn[labels == label] = torch.arange(int((labels == label).sum()))
    return (turn * data.targets.shape[1] + labels).argsort()


def attack_of(server: str, size: int, copies: int) -> Attack:
    if server.startswith("cah"):
        return ATTACKS["cah"](neurons=TRAPS[size], examples=size * (copies if server == "cah-copies" else 1))
    if server == "single-layer":
        return ATTACKS["linear-model"]()
    if server == "single-layer-unmix":
        return ATTACKS["unmix"](inner="linear-model", explained=ROUGHLY)
    if server == "unmix":
        return ATTACKS["unmix"](neurons=NEURONS[size])
    return ATTACKS["rtf"](neurons=NEURONS[size], functional=server)


def recovered(data: Dataset, some: Tensor, model: nn.Module, defense: Defense, attack: Attack) -> Iterator[float]:
    """PSNR of each picture of a batch, in dB, against what was read off and belongs to it."""
    scenario = Scenario(
        name="oasis",
        model=model,
        private=Batch(data.images[some].unsqueeze(0), data.targets[some].unsqueeze(0)),
        names=(f"batch-{int(some[0])}",),
        threat=ThreatModel(may_plant="malicious" in attack.requires, knows_defense=True),
        public=Batch(data.images[PUBLIC], data.targets[PUBLIC]),
    )
    seed = Seed(0).at(len(some), int(some[0]) // len(some))
    seen, truth = observe(scenario, defense, attack, seed)
    got = attack.reconstruct(seen, seed)
    shown: Tensor = align(got.images.clamp(0, 1), truth.private.images, got.found).images
    yield from peak_signal_to_noise(shown, truth.private.images).flatten().tolist()


def about(scores: list[float]) -> dict[str, Any]:
    exact = sum(score >= EXACT for score in scores)
    between, rate = mean_interval(scores), rate_interval(exact, len(scores))
    assert between is not None
    return {
        "psnr": round(sum(scores) / len(scores), 2),
        "psnr_low": round(between.low, 2),
        "psnr_high": round(between.high, 2),
        "median": round(sorted(scores)[len(scores) // 2], 2),
        "exact": exact,
        "rate_low": round(rate.low, 4),
        "rate_high": round(rate.high, 4),
        "per_picture_psnr": [round(score, 2) for score in scores],
    }


def tell(line: dict[str, Any], out: Path | None) -> None:
    print(json.dumps({key: value for key, value in line.items() if key != "per_picture_psnr"}), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--batches", type=int, nargs=2, default=(25, 10), help="of 8 and of 64 pictures, for each cell")
    parser.add_argument("--unmixed", type=int, nargs=2, default=(6, 1), help="the same for `unmix`, which takes longer")
    parser.add_argument("--defenses", nargs="+", default=DEFENSES)
    parser.add_argument("--servers", nargs="+", default=SERVERS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
