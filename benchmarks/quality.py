"""How much the default attack recovers on CIFAR-100: the figures in benchmarks/results/ and in decision 0007.

    PYTHONPATH=src python3 benchmarks/quality.py --root DATA --lpips lpips_alex.npz --device cuda --precision tf32

Trains ResNet20-4 for ten epochs with the reference recipe (SGD, Nesterov 0.9, weight decay 5e-4, batch 128, rate 0.1
falling tenfold at 3/8, 5/8 and 7/8), attacks the untrained and the trained model, and prints JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.metrics import METRICS
from gradveil.models import MODELS

MARKS = (3 / 8, 5 / 8, 7 / 8)


def main() -> None:
    args = arguments()
    train_set, test_set = (load("cifar100", root=args.root, split=split) for split in ("train", "test"))
    model = MODELS["resnet20-4"](classes=100, mean=train_set.mean, std=train_set.std).to(args.device)
    print(json.dumps(measured("untrained", model.eval(), test_set, args)), flush=True)
    train(model, train_set, args.epochs)
    accuracy = share_right(model.eval(), test_set)
    for tv in (1e-4, None):
        print(json.dumps({"accuracy": accuracy, **measured("trained", model, test_set, args, tv)}), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--lpips", required=True, help="AlexNet's LPIPS weights, .npz")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2400)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    return parser.parse_args()


def measured(
    name: str, model: nn.Module, data: Dataset, args: argparse.Namespace, tv: float | None = None
) -> dict[str, Any]:
    """The default attack, or the one with a single TV weight, on the first pictures."""
    attack = invertgrad(steps=args.steps) if tv is None else invertgrad(steps=args.steps, tv=tv)
    images, labels = (x[: args.images, None].to(args.device) for x in (data.images, data.targets))
    names = tuple(f"c{i:04d}" for i in range(args.images))
    scenario = Scenario(name=name, model=model, private=Batch(images, labels), names=names)
    seen, truth = observe(scenario, Defense(), attack, Seed(0))
    begin = time.perf_counter()
    got = attack.reconstruct(seen, Seed(1), Compute(device=args.device, precision=args.precision)).images.float().cpu()
    scores = {n: METRICS[n]().score(got, truth.private.images.cpu()).flatten() for n in ("psnr", "ssim")}
    scores["lpips"] = METRICS["lpips"](weights=args.lpips).score(got, truth.private.images.cpu()).flatten()
    return {
        "model": name,
        "tv": tv or "default",
        "images": args.images,
        "steps": args.steps,
        "seconds": time.perf_counter() - begin,
        "psnr_max": scores["psnr"].max().item(),
        **{n: s.mean().item() for n, s in scores.items()},
    }


def train(
    model: nn.Module, data: Dataset, epochs: int, size: int = 128, after_step: Callable[[int], None] = lambda step: None
) -> None:
    """`after_step` is called before the first step too, with 0."""
    device = next(model.parameters()).device
    images, labels = data.images.to(device), data.targets.argmax(1).to(device)
    steps = epochs * (len(labels) // size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(mark * steps) for mark in MARKS])
    rng = torch.Generator(device=device).manual_seed(0)
    after_step(0)
    model.train()
    for step in range(steps):
        if step % (len(labels) // size) == 0:
            order = torch.randperm(len(labels), device=device, generator=rng)
        batch = order[step % (len(labels) // size) * size :][:size]
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(cropped_and_flipped(images[batch], rng))
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(logits.float(), labels[batch]).backward()
        optimizer.step()
        schedule.step()
        after_step(step + 1)


def cropped_and_flipped(images: Tensor, rng: torch.Generator) -> Tensor:
    """Random crops of the pictures padded by four, half of them mirrored."""
    count, side = images.shape[0], torch.arange(images.shape[-1], device=images.device)

    def draw(high: int) -> Tensor:
        return torch.randint(0, high, (count, 1), device=images.device, generator=rng)

    rows, columns = draw(9) + side, draw(9) + side
    columns = torch.where(draw(2) == 1, columns.flip(1), columns)
    which = torch.arange(count, device=images.device)[:, None, None]
    return F.pad(images, (4, 4, 4, 4))[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@torch.no_grad()
def share_right(model: nn.Module, data: Dataset) -> float:
    device = next(model.parameters()).device
    pairs = zip(data.images.split(1000), data.targets.split(1000), strict=True)
    right = [(model(x.to(device)).argmax(1).cpu() == y.argmax(1)).float() for x, y in pairs]
    return torch.cat(right).mean().item()


if __name__ == "__main__":
    main()
