"""ATS, figure 11 and tables 7, 9 and 10: steps, stages of training, batch sizes, stacked operations, starts, transfer.

    PYTHONPATH=src:papers/ats python3 papers/ats/sweeps.py --root DATA --checkpoints DIR --out OUT.jsonl \\
        --images 50 --device cuda --precision tf32 steps stages batches stacked black

`--checkpoints` holds stage-25, -50, -75 and -100.safetensors. Every sweep is run without and with the policy; the
attack is the preset of ATS. For Fashion-MNIST give `--data fashion-mnist` and a policy found on CIFAR-100.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from victims import Bench, attacked, bench_of, tell

from gradveil.attacks import ATTACKS
from gradveil.attacks.inversion.engine import Inversion
from gradveil.attacks.inversion.space import Pixels
from gradveil.data import load
from gradveil.defenses import DEFENSES
from gradveil.defenses.base import Defense


def main() -> None:
    args = arguments()
    args.test = load(args.data, root=args.root, split="test")
    bench = bench_of(args, args.test, args.checkpoints / "stage-100.safetensors")
    for name in args.sweeps:
        SWEEPS[name](bench, args)


def steps(bench: Bench, args: argparse.Namespace) -> None:
    for count in (4800, 7800, 10800, 13800):
        for policy in ("none", args.policy):
            run("steps", count, policy, bench, args, steps=count)


def stages(bench: Bench, args: argparse.Namespace) -> None:
    for stage in (25, 50, 75, 100):
        here = bench_of(args, args.test, args.checkpoints / f"stage-{stage}.safetensors")
        for policy in ("none", args.policy):
            run("stages", stage, policy, here, args)


def batches(bench: Bench, args: argparse.Namespace) -> None:
    for size in (1, 2, 4, 8):
        for policy in ("none", args.policy):
            run("batches", size, policy, bench, args, batch=size)


def stacked(bench: Bench, args: argparse.Namespace) -> None:
    for policy in ("none", "3", "3-43", "3-43-15", args.policy):
        run("stacked", policy, policy, bench, args)


def black(bench: Bench, args: argparse.Namespace) -> None:
    """The attacker who starts from black pixels, as shifts leave them."""
    for policy in ("21-3-16", "21-13-3", args.policy):
        run("start", "random", policy, bench, args)
        run("start", "black", policy, bench, args, space=Pixels(start="black"))


def transfer(bench: Bench, args: argparse.Namespace) -> None:
    for policy in ("none", "13-43-18", "21-3-16", "13-43-18+21-3-16", "3-1-7+43-18-18"):
        run("transfer", args.data, policy, bench, args)


SWEEPS: dict[str, Callable[[Bench, argparse.Namespace], None]] = {
    "steps": steps,
    "stages": stages,
    "batches": batches,
    "stacked": stacked,
    "black": black,
    "transfer": transfer,
}


def run(
    sweep: str, value: Any, policy: str, bench: Bench, args: argparse.Namespace, *, batch: int = 1, **changed: Any
) -> None:
    attack: Inversion = replace(ATTACKS["invertgrad-ats"](steps=args.steps), **changed)
    library = (
        "ats-paper" if "16" in policy.replace("+", "-").split("-") else "ats-code"
    )  # 16 is a shift in the paper only
    defense = Defense() if policy == "none" else DEFENSES["ats"](policy=policy, library=library)
    seen, truth = bench.observed(defense, max(1, args.images // batch), batch=batch)
    head = {"sweep": sweep, "value": value, "policy": policy, "model": args.model, "steps": attack.steps}
    tell(head | attacked(attack, seen, truth, bench, defense), args.out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--model", default="convnet32")
    parser.add_argument("--checkpoints", required=True, type=Path)
    parser.add_argument("--policy", default="3-1-7+43-18-18")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--steps", type=int, default=4800)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("sweeps", nargs="+", choices=sorted(SWEEPS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
