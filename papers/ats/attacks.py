"""The six attacks of ATS (table 3) on the first CIFAR-100 test pictures, with the constants of its code, beside ours.

    PYTHONPATH=src python3 papers/ats/attacks.py --root DATA --lpips lpips_alex.npz --weights stage-100.safetensors \\
        --out OUT --images 100 --device cuda --precision tf32 invertgrad-ats adam-l1-ats lbfgs-cosine-code:10

`NAME:N` attacks only the first N pictures, `NAME:A-B` those from A to before B, `NAME:N:R` with R restarts: L-BFGS with
16 starts and 6,000 values each takes half an hour for 100.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from gradveil.attacks import ATTACKS
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.interval import mean_interval
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.metrics import METRICS
from gradveil.models import MODELS, load_weights


def main() -> None:
    args = arguments()
    data = load("cifar100", root=args.root, split="test")
    model = MODELS["resnet20-4"](classes=100, mean=data.mean, std=data.std)
    load_weights(model, args.weights)
    scenario_of_all = scenario(model.to(args.device).eval(), data, args.images, args.device)
    args.out.mkdir(parents=True, exist_ok=True)
    for choice in args.attacks:
        name, _, rest = choice.partition(":")
        report = attacked(name, scenario_of_all, rest, args)
        (args.out / f"{choice.replace(':', '-')}.json").write_text(json.dumps(report) + "\n")
        print(json.dumps({key: value for key, value in report.items() if key != "per_picture_psnr"}), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--lpips", required=True, help="AlexNet's LPIPS weights, .npz")
    parser.add_argument("--weights", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("attacks", nargs="+", metavar="NAME[:N|:A-B][:R]")
    return parser.parse_args()


def scenario(model: torch.nn.Module, data: Dataset, count: int, device: str) -> Scenario:
    images, labels = (x[:count, None].to(device) for x in (data.images, data.targets))
    return Scenario(
        name="ats", model=model, private=Batch(images, labels), names=tuple(f"c{i:04d}" for i in range(count))
    )


def wanted(text: str, every: int) -> range:
    """The pictures of `N`, `A-B` or nothing: all."""
    first, dash, last = text.partition("-")
    return range(int(first), int(last)) if dash else range(int(first or every))


def attacked(name: str, everyone: Scenario, rest: str, args: argparse.Namespace) -> dict[str, Any]:
    which, _, restarts = rest.partition(":")
    pictures = wanted(which, args.images)
    attack: Any = ATTACKS[name](**({"restarts": int(restarts)} if restarts else {}))
    seen, truth = observe(everyone, Defense(), attack, Seed(0))
    begin = time.perf_counter()
    got = attack.reconstruct(seen.take(pictures), Seed(1), Compute(device=args.device, precision=args.precision))
    seconds = time.perf_counter() - begin
    images, private = got.images.float().cpu().clamp(0, 1), truth.private.images[pictures.start : pictures.stop].cpu()
    psnr = METRICS["psnr"]().score(images, private).flatten()
    lpips = METRICS["lpips"](weights=args.lpips).score(images, private).flatten()
    between = mean_interval(psnr.tolist())
    return {
        "attack": name,
        "pictures": len(pictures),
        "first": pictures.start,
        "steps": attack.steps,
        "restarts": attack.restarts,
        "psnr": psnr.mean().item(),
        "sd": psnr.std().item(),
        "interval": [between.low, between.high] if between else None,
        "best": psnr.max().item(),
        "lpips": lpips.mean().item(),
        "seconds": seconds,
        "backend": got.backend,
        "failed": int((~got.loss.isfinite()).sum()),
        "per_picture_psnr": [round(x, 2) for x in psnr.tolist()],
    }


if __name__ == "__main__":
    main()
