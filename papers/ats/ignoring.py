"""What an attacker gains who knows a defense and may ignore it, on an untrained network of the catalogue.

    PYTHONPATH=src python3 papers/ats/ignoring.py --pictures cifar10_test.npz --model lenet5 --steps 300 \\
        ats:30 ats:11-30-35 --out OUT

CIFAR-10's test pictures (`images`, `labels`, in the official order): the first are attacked, one a client with known
labels; 256 from number 5,000 on are public. `invertgrad` with one TV weight, one start. A line for each defense: PSNR
against the private picture of who does not know the defense, who searches through its surrogate and views, and who
may ignore them; the paired difference of the last and the first with its standard error.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.attacks import ATTACKS
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import load
from gradveil.defenses import parse_defense
from gradveil.engine.informed import Informed
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

PUBLIC = slice(5000, 5256)


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    scenario = scenario_of(args)
    for spec in args.defenses:
        line = {"defense": spec, "model": args.model, "steps": args.steps, "tv": args.tv, "images": args.images}
        with args.out.open("a") as out:
            out.write(json.dumps(line | measure(scenario, spec, args)) + "\n")


def scenario_of(args: argparse.Namespace) -> Scenario:
    data = load("npz", path=args.pictures, split="test")
    return Scenario(
        name="ignoring",
        model=MODELS[args.model](classes=len(data.class_names), shape=data.shape, seed=0),
        private=Batch(data.images[: args.images, None], data.targets[: args.images, None]),
        names=tuple(f"c{number}" for number in range(args.images)),
        public=Batch(data.images[PUBLIC], data.targets[PUBLIC]),
    )


def measure(scenario: Scenario, spec: str, args: argparse.Namespace) -> dict[str, Any]:
    attack, defense = ATTACKS["invertgrad"](steps=args.steps, tv=args.tv), parse_defense(spec)
    seen = {}
    for knows in (False, True):
        threat = ThreatModel(knows_defense=knows)
        seen[knows], truth = observe(replace(scenario, threat=threat), defense, attack, Seed(0).at("o", spec))
    seed = Seed(0).at("a", spec)
    unaware = attack.reconstruct(seen[False], seed)
    found = {
        "unaware": unaware,
        "through": attack.reconstruct(seen[True], seed),
        "informed": Informed(inner=attack, recall=lambda names: unaware).reconstruct(seen[True], seed),
    }
    decibels = {name: psnr(got.images, truth.private.images) for name, got in found.items()}
    as_fed = psnr(
        found["informed"].images if found["informed"].fed is None else found["informed"].fed, truth.fed.images
    )
    gain = decibels["informed"] - decibels["unaware"]
    blank = psnr(torch.full_like(truth.private.images, 0.47), truth.private.images)
    means = {name: round(each.mean().item(), 2) for name, each in decibels.items()}
    return means | {
        "gain": round(gain.mean().item(), 2),
        "gain_se": round((gain.std() / len(gain) ** 0.5).item(), 2),
        "informed_fed": round(as_fed.mean().item(), 2),
        "blank": round(blank.mean().item(), 2),
        "notes": list(found["informed"].notes),
    }


def psnr(got: Tensor, truth: Tensor) -> Tensor:
    return peak_signal_to_noise(got, truth).flatten()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("defenses", nargs="+")
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tv", type=float, default=1e-2)
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
