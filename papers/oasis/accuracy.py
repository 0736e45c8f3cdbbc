"""Accuracy with OASIS (Jeter et al., 2024, table I): ResNet-18 on CIFAR-100, trained with and without copies.

    PYTHONPATH=src python3 papers/oasis/accuracy.py --root DATA --epochs 120 --device cuda --out accuracy.jsonl
    PYTHONPATH=src python3 papers/oasis/accuracy.py --data some.zip --seconds 150 --device cuda   # epochs that fit

Adam, rate 1e-3 and weight decay 1e-2, as the paper has it. It does not say whether the decay is decoupled, which
batches are taken, whether the rate falls and whether pictures are cropped and flipped besides: `--decay`,
`--batch-size`, `--schedule` and `--augment`. `--equal epochs` is the paper's comparison, in which a step with copies
sees 2 to 7 times as many pictures; with `--equal pictures-fed` every row is trained until it has seen as many pictures
as the one with most copies. One JSON line a row, at once. On cuda: bfloat16, channels last, all data on the device.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from gradveil.core.interval import rate_interval
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.defenses.oasis import Oasis
from gradveil.models import MODELS
from gradveil.train.centralized import accuracy
from gradveil.transforms.pipeline import CropAndFlip

PAPER = {  # accuracy in %
    "none": 75.2, "major": 74.3, "minor": 74.1, "shear": 73.7, "hflip": 75.1, "vflip": 74.3, "major+shear": 74.6,
}  # fmt: skip
EQUAL = ("epochs", "pictures-fed")
OPTIONS = ("model", "decay", "schedule", "augment", "batch_size", "seed", "device")
OPTIMIZERS = {"decoupled": torch.optim.AdamW, "coupled": torch.optim.Adam}
WARM, TIMED = 4, 6  # steps
MARGIN = 0.93  # of the time is planned


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a row is trained, all but the copies and how long."""

    model: str
    decay: str
    schedule: str
    augment: bool
    batch_size: int
    seed: int
    device: str
    rate: float = 1e-3
    weight_decay: float = 1e-2

    @property
    def fast(self) -> bool:
        return self.device.startswith("cuda")

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        kind = OPTIMIZERS[self.decay]
        return kind(model.parameters(), lr=self.rate, weight_decay=self.weight_decay, fused=self.fast)

    def rate_at(self, progress: float) -> float:
        return self.rate if self.schedule == "constant" else self.rate * (1 + math.cos(math.pi * progress)) / 2

    def autocast(self) -> AbstractContextManager:
        return torch.autocast("cuda", torch.bfloat16) if self.fast else nullcontext()

    def fresh(self, data: Dataset) -> nn.Module:
        size = {"classes": data.targets.shape[1], "shape": data.shape, "mean": data.mean, "std": data.std}
        model = MODELS[self.model](**size, seed=self.seed).to(self.device)
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One training; `equal` says in which comparisons it stands."""

    transforms: str
    epochs: int
    equal: tuple[str, ...]


def main() -> None:
    args = arguments()
    torch.backends.cudnn.benchmark = True
    recipe = Recipe(**{name: getattr(args, name) for name in OPTIONS})
    data, test = (loaded(args, split, most) for split, most in (("train", args.pictures), ("test", args.test_pictures)))
    fed, held_out = (Batch(d.images.to(args.device), d.targets.to(args.device)) for d in (data, test))
    epochs = args.epochs or affordable(recipe, data, fed, args)
    for row in planned(args.transforms, epochs, args.equal):
        start = time.perf_counter()
        model = trained(recipe, data, fed, row)
        right = round(accuracy(model, held_out) * len(held_out.images))
        tell(about(recipe, row, right, len(held_out.images), len(fed.images), time.perf_counter() - start), args.out)


def loaded(args: argparse.Namespace, split: str, most: int | None) -> Dataset:
    """The first pictures of the data set, which has its classes in any order."""
    where = {"root": args.root} if args.data == "cifar100" else {}
    return load(args.data, split=split, limit=most, **where)


def planned(transforms: Sequence[str], epochs: int, equal: Sequence[str]) -> list[Row]:
    """Each training once, also where it belongs to both comparisons."""
    copies = {name: Oasis(transforms=name).copies for name in transforms}
    rows: dict[tuple[str, int], tuple[str, ...]] = {}
    for reading in equal:
        for name in transforms:
            more = max(copies.values()) / copies[name] if reading == "pictures-fed" else 1
            key = (name, max(1, round(epochs * more)))
            rows[key] = (*rows.get(key, ()), reading)
    return [Row(transforms=name, epochs=count, equal=for_) for (name, count), for_ in rows.items()]


def affordable(recipe: Recipe, data: Dataset, fed: Batch, args: argparse.Namespace) -> int:
    """Epochs, the same for all rows, that fit into `--seconds`; a few steps of each are timed first."""
    started = time.perf_counter()
    each = steps_of(fed, recipe)
    cost = {name: each * seconds_a_step(recipe, data, fed, name) for name in args.transforms}
    whole = 1000  # so that shares of an epoch are counted too
    one = sum(row.epochs / whole * cost[row.transforms] for row in planned(args.transforms, whole, args.equal))
    return max(1, int((MARGIN * args.seconds - (time.perf_counter() - started)) / one))


def seconds_a_step(recipe: Recipe, data: Dataset, fed: Batch, transforms: str) -> float:
    model = recipe.fresh(data).train()
    optimizer, started = recipe.optimizer(model), 0.0
    for number, batch in enumerate(batches(fed, recipe, transforms, Seed().at("timed"))):
        if number == WARM:
            started = now(recipe)
        step(recipe, model, optimizer, batch)
        if number == WARM + TIMED - 1:
            break
    return (now(recipe) - started) / max(1, number + 1 - WARM)


def now(recipe: Recipe) -> float:
    if recipe.fast:
        torch.cuda.synchronize()
    return time.perf_counter()


def trained(recipe: Recipe, data: Dataset, fed: Batch, row: Row) -> nn.Module:
    model = recipe.fresh(data).train()
    optimizer, steps = recipe.optimizer(model), steps_of(fed, recipe) * row.epochs
    done = 0
    for epoch in range(row.epochs):
        for batch in batches(fed, recipe, row.transforms, Seed(recipe.seed).at("accuracy", epoch)):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate_at(done / steps)
            step(recipe, model, optimizer, batch)
            done += 1
    return model.eval()


def steps_of(fed: Batch, recipe: Recipe) -> int:
    return max(1, len(fed.images) // recipe.batch_size)


def batches(fed: Batch, recipe: Recipe, transforms: str, seed: Seed) -> Iterator[Batch]:
    """One epoch: in a new order, cropped and flipped if asked for, then with the copies. The last, if short, is out."""
    where, count = fed.images.device, len(fed.images)
    order = torch.randperm(count, generator=seed.at("order").rng()).to(where)
    framed = CropAndFlip(*(x.to(where) for x in CropAndFlip.draw(count, seed.at("crop").rng())))
    oasis, unused = Oasis(transforms=transforms), Seed().rng()
    for first in range(0, steps_of(fed, recipe) * recipe.batch_size, recipe.batch_size):
        here = slice(first, first + recipe.batch_size)
        images, labels = fed.images[order[here]], fed.labels[order[here]]
        if recipe.augment:
            images = CropAndFlip(*(x[here] for x in framed)).apply(images)
        yield oasis.batch(Batch(images, labels), unused)


def step(recipe: Recipe, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    with recipe.autocast():
        logits = model(batch.images.contiguous(memory_format=torch.channels_last))
    loss = F.cross_entropy(logits.float(), batch.labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def about(recipe: Recipe, row: Row, right: int, of: int, pictures: int, seconds: float) -> dict[str, Any]:
    between = rate_interval(right, of)
    copies = Oasis(transforms=row.transforms).copies
    found = {"accuracy": round(100 * right / of, 2), "low": round(100 * between.low, 2)}
    found |= {"high": round(100 * between.high, 2), "test_pictures": of, "paper": PAPER.get(row.transforms)}
    fed = {"copies": copies, "pictures": pictures, "pictures_fed": copies * pictures * row.epochs}
    return asdict(row) | found | fed | {"seconds": round(seconds, 1)} | asdict(recipe)


def tell(line: dict[str, Any], out: Path | None) -> None:
    print(json.dumps(line), flush=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar100", help="or a .zip or .npz of pictures with a train and a test part")
    parser.add_argument("--root", default="data", help="folder with CIFAR-100")
    parser.add_argument("--model", default="resnet18", choices=list(MODELS))
    parser.add_argument("--transforms", nargs="+", default=list(PAPER))
    parser.add_argument("--equal", nargs="+", default=["epochs"], choices=EQUAL)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--epochs", type=int)
    length.add_argument("--seconds", type=float, help="for all rows together")
    parser.add_argument("--pictures", type=int, help="to train on; all of them otherwise")
    parser.add_argument("--test-pictures", type=int)
    parser.add_argument("--batch-size", type=int, default=128, help="without the copies")
    parser.add_argument("--decay", default="decoupled", choices=list(OPTIMIZERS))
    parser.add_argument("--schedule", default="constant", choices=["constant", "cosine"])
    parser.add_argument("--augment", action="store_true", help="random crops and flips before the copies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
