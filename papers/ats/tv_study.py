"""How much the TV weight of Inverting Gradients decides, at four stages of training.

    PYTHONPATH=src:benchmarks python3 papers/ats/tv_study.py --root DATA --lpips lpips_alex.npz \\
        --checkpoints CHECKPOINTS --out OUT --images 100 --steps 1200 --device cuda --precision tf32

Every picture is attacked with every weight of the default attack; `stage-N.npz` keeps scores, the attacker's match and
roughness, and the pictures, so that any rule of choosing can be tried afterwards.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gradveil.attacks.invertgrad import TV_WEIGHTS, invertgrad
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.engine.finish import by_match_and_roughness
from gradveil.engine.priors.prior import TotalVariation
from gradveil.metrics import METRICS
from gradveil.models import MODELS, load_weights


def main() -> None:
    args = arguments()
    test_set = load("cifar100", root=args.root, split="test")
    args.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(args.checkpoints.glob("stage-*.safetensors"), key=lambda p: int(p.stem.split("-")[1])):
        if args.stages and path.stem.split("-")[1] not in args.stages:
            continue
        begin = time.perf_counter()
        found = study(path, test_set, args)
        np.savez_compressed(args.out / f"{path.stem}.npz", **found)
        means = {f"{weight:g}": round(float(m), 3) for weight, m in zip(TV_WEIGHTS, found["psnr"].mean(0), strict=True)}
        chosen = float(found["psnr"][np.arange(len(found["psnr"])), found["chosen"]].mean())
        report = {
            "stage": path.stem,
            "psnr": means,
            "default": round(chosen, 3),
            "seconds": time.perf_counter() - begin,
        }
        print(json.dumps(report), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--lpips", required=True, help="AlexNet's LPIPS weights, .npz")
    parser.add_argument("--checkpoints", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--stages", nargs="*", default=[])
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    return parser.parse_args()


def study(path: Path, data: Dataset, args: argparse.Namespace) -> dict[str, np.ndarray]:
    model = MODELS["resnet20-4"](classes=100, mean=data.mean, std=data.std)
    load_weights(model, path)
    held: dict[str, Tensor] = {}

    def watched(images: Tensor, total: Tensor, match: Tensor) -> Tensor:
        held.update(images=images.float().cpu(), match=match.float().cpu())
        held["chosen"] = by_match_and_roughness(images, total, match).cpu()
        return held["chosen"].to(images.device)

    attack = replace(invertgrad(steps=args.steps), select=watched)
    images, labels = (x[: args.images, None].to(args.device) for x in (data.images, data.targets))
    names = tuple(f"c{i:04d}" for i in range(args.images))
    scenario = Scenario(name="study", model=model.to(args.device).eval(), private=Batch(images, labels), names=names)
    seen, truth = observe(scenario, Defense(), attack, Seed(0))
    attack.reconstruct(seen, Seed(1), Compute(device=args.device, precision=args.precision))
    got = held["images"].clamp(0, 1)  # [client, weight, 1, channel, height, width]
    original = truth.private.images.float().cpu().unsqueeze(1).expand_as(got)
    lpips = METRICS["lpips"](weights=args.lpips)
    return {
        "weights": np.asarray(TV_WEIGHTS),
        "psnr": METRICS["psnr"]().score(got, original)[..., 0].numpy(),
        "lpips": torch.stack([lpips.score(g, o)[..., 0] for g, o in zip(got, original, strict=True)]).numpy(),
        "match": held["match"].numpy(),
        "roughness": TotalVariation().of(got.flatten(0, 1)).unflatten(0, got.shape[:2]).numpy(),
        "chosen": held["chosen"].numpy(),
        "pictures": (got[:, :, 0] * 255).round().byte().numpy(),
    }


if __name__ == "__main__":
    main()
