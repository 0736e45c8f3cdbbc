"""[Re] ATS, tables 1 and 2: what an attacker gains who knows the policy, four attackers side by side.

    PYTHONPATH=src:papers/ats python3 papers/ats/known_policies.py --root DATA --weights W.safetensors --out OUT \\
        --images 50 --steps 1200 --device cuda --precision tf32 none 3-1-7 43-18-18 3-1-7+43-18-18

unaware: the preset of ATS; gray: the learned shift of [Re] ATS; black: ours, that comes in black and starts all around;
exact: knows the policy and tries every draw of it. `fed` compares T(x*) with the transformed picture, as the papers do;
blank: no attack at all, a gray picture.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from victims import Bench, about, attacked, bench_of, tell

from gradveil.attacks import ATTACKS
from gradveil.core.defense import Defense
from gradveil.data import load
from gradveil.defenses import DEFENSES
from gradveil.metrics import METRICS

LIMITS = {"3-1-7": "3-1-7", "43-18-18": "43-18-18"}  # any other policy: that of the hybrid


def main() -> None:
    args = arguments()
    bench = bench_of(args, load("cifar100", root=args.root, split="test"), args.weights)
    for policy in args.policies:
        defense = Defense() if policy == "none" else DEFENSES["ats"](policy=policy)
        tell({"policy": policy, "attacker": "blank", **blank(bench, defense, args.images)}, args.out)
        for attacker, attack, options in attackers(policy, args):
            seen, truth = bench.observed(defense, args.images, aware=attacker == "exact")
            report = attacked(ATTACKS[attack](steps=args.steps, **options), seen, truth, bench, defense)
            head = {
                "policy": policy,
                "attacker": attacker,
                "attack": attack,
                "steps": args.steps,
                "images": args.images,
            }
            tell(head | report, args.out)


def blank(bench: Bench, defense: Defense, count: int) -> dict[str, Any]:
    """A gray picture through the true transformation: what the frame that a shift leaves is worth without an attack."""
    truth = bench.observed(defense, count)[1]
    guess = replace(bench, images=torch.full_like(bench.images, 0.5)).observed(defense, count)[1]
    score = METRICS["psnr"]().score
    pairs = (("private", guess.private, truth.private), ("fed", guess.fed, truth.fed))
    return {f"psnr_{kind}": about(score(got.images.cpu(), true.images.cpu()).flatten()) for kind, got, true in pairs}


def attackers(policy: str, args: argparse.Namespace) -> list[tuple[str, str, dict]]:
    limit = {"limit": LIMITS.get(policy, "hybrid")}
    every = [
        ("unaware", "invertgrad-ats", {}),
        ("unaware-smooth", "invertgrad", {"tv": args.tv}),
        ("gray", "shifted-re-ats", limit),
        ("black", "shifted", limit | {"tv": args.tv, "restarts": args.restarts}),
        ("exact", "known-policy", {"tv": args.tv}),
    ]
    return [one for one in every if one[0] in args.attackers and (policy != "none" or one[0].startswith("unaware"))]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--model", default="resnet20-4")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--tv", type=float, default=1e-2)
    parser.add_argument("--restarts", type=int, help="of the black attacker; all its starts if not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--attackers", nargs="+", default=["unaware", "unaware-smooth", "gray", "black", "exact"])
    parser.add_argument("policies", nargs="+", metavar="POLICY")
    return parser.parse_args()


if __name__ == "__main__":
    main()
