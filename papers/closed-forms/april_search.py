"""What `april-search` makes of disturbed updates of vision transformers, beside a search from noise of as many steps.

    PYTHONPATH=src python3 papers/closed-forms/april_search.py --root DATA --out april-search.jsonl --device cuda

DATA holds cifar10_test.npz (images and labels as arrays). Eight pictures each, labels known, one gradient.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from torch import Tensor

from gradveil.attacks.april import april
from gradveil.attacks.april_search import TV_WEIGHTS, april_search, read_damped
from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.compute import Compute
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import load
from gradveil.defenses import parse_defense
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

NETWORKS = ("vit-tiny", "vit-small")
DEFENSES = (
    "gaussian:scale=0.0001", "gaussian:scale=0.001", "gaussian:scale=0.01", "prune:ratio=0.5", "prune:ratio=0.9",
    "qsgd:bits=8", "sign",
)  # fmt: skip
VICTIMS, CLASSES = 8, 10


def main() -> None:
    args = arguments()
    compute, until = Compute(device=args.device), time.monotonic() + args.seconds
    data = load(str(args.root / "cifar10_test.npz"), limit=400)
    with compute.active():
        for network in NETWORKS:
            for defense in DEFENSES:
                if time.monotonic() < until:
                    write(args.out, measure(network, defense, data.images, data.targets, args.steps, compute))


def measure(network: str, defense: str, images: Tensor, labels: Tensor, steps: int, compute: Compute) -> dict:
    """Decibels of every picture, by what drew it."""
    private = Batch(images[:VICTIMS, None].to(compute.device), labels[:VICTIMS, None].float().to(compute.device))
    mean, std = images.mean((0, 2, 3)).tolist(), images.std((0, 2, 3)).tolist()
    model = MODELS[network](classes=CLASSES, shape=tuple(images.shape[1:]), mean=mean, std=std).to(compute.device)
    names = tuple(f"c{place:04d}" for place in range(VICTIMS))
    scenario = Scenario(name="vit", model=model, private=private, names=names, threat=ThreatModel(knows_labels=True))
    seen, _ = observe(scenario, parse_defense(defense), april(), Seed(0))
    blank = images[VICTIMS:].mean(0).to(compute.device).expand_as(private.images)
    drawn = {"blank": blank, "read": read_damped(seen)[0]}
    for name, attack in (("search", invertgrad), ("april-search", april_search)):
        drawn[name] = attack(steps=steps, tv=TV_WEIGHTS).reconstruct(seen, Seed(0), compute).images
    found = {name: [round(float(x), 2) for x in peak_signal_to_noise(pictures, private.images).flatten()]
             for name, pictures in drawn.items()}  # fmt: skip
    return {"network": network, "defense": defense, "steps": steps, **found}


def write(out: Path, line: dict) -> None:
    with out.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps({k: round(sum(v) / len(v), 2) if isinstance(v, list) else v for k, v in line.items()}), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=200)
    return parser.parse_args()


if __name__ == "__main__":
    main()
