"""ROG against Inverting Gradients at equal steps and at equal time, without its parts, on its way (fig. 2 to 5, 16).

    PYTHONPATH=src python3 papers/rog/reconstruct.py --root DATA --out reconstruct.jsonl [--enhancer FILE]

Batches of 16, five local steps, 128 pixels, labels known, no defense. `equal-time` gives Inverting Gradients the steps
that it can take while ROG runs; `--long 20000` gives it the paper's as well and says after how many it was as good as
ROG at its end, if it ever was. Curves have the match and every metric at twenty moments.
"""

from __future__ import annotations

import argparse
from typing import Any

from victims import Bench, bench_of, parser, tell, watched

from gradveil.attacks import ATTACKS
from gradveil.attacks.inversion.engine import Inversion
from gradveil.defenses.base import Defense
from gradveil.server import Observation, Truth

MOMENTS = 20
TV = 1e-2  # the middle one of `invertgrad`'s weights, and that of `rog`


def main() -> None:
    args = arguments()
    for model in args.models:
        bench = bench_of(args, model)
        seen, truth = bench.observed(args.clients, Defense())
        head = {"model": model, "clients": args.clients, "local_steps": args.local_steps, "size": args.size}
        seconds: dict[str, float] = {}
        bench.attacked(inverting(2), seen, truth)  # the first attack of a process takes longer
        for name, attack in cases(args).items():
            line = bench.attacked(attack, seen, truth)
            seconds[name] = line["seconds"]
            tell(head | {"case": name, "steps": attack.steps} | line, args.out)
        budget = max(1, round(args.steps * seconds["rog"] / max(seconds["invertgrad"], 1e-9)))
        equal = inverting(budget)
        tell(head | {"case": "invertgrad equal-time", "steps": budget} | bench.attacked(equal, seen, truth), args.out)
        drawn = {name: curve(bench, attack, seen, truth) for name, attack in curves(args).items()}
        for name, points in drawn.items():
            tell(head | {"curve": name, "points": points}, args.out)
        tell(
            head | {"as good as rog after": {name: caught_up(drawn["rog"], points) for name, points in drawn.items()}},
            args.out,
        )


def cases(args: argparse.Namespace) -> dict[str, Inversion]:
    """Equal steps. `no projection` is ROG on pixels; each is told with and without the enhancer if there is one."""
    found: dict[str, Any] = {name: ATTACKS[name](steps=args.steps) for name in ("rog", "rog-code", "rog-paper")}
    found["no projection"] = ATTACKS["rog"](steps=args.steps, space="pixels")
    found["invertgrad"] = inverting(args.steps)
    if args.autoencoder:
        found["autoencoder"] = ATTACKS["rog"](steps=args.steps, space="autoencoder", weights=args.autoencoder)
    return found


def curves(args: argparse.Namespace) -> dict[str, Inversion]:
    found = cases(args)
    if args.long:
        found["invertgrad long"] = inverting(args.long)
    return found


def inverting(steps: int) -> Any:
    return ATTACKS["invertgrad"](steps=steps, tv=TV)


def curve(bench: Bench, attack: Inversion, seen: Observation, truth: Truth) -> list[dict[str, Any]]:
    """Match and mean scores at every moment; pictures are those of the best objective so far."""
    points = []
    for step, match, pictures in watched(attack, seen, bench.compute, max(1, attack.steps // MOMENTS)):
        _, scores = bench.scored(pictures, truth)
        means = {name: round(values.mean().item(), 4) for name, values in scores.items()}
        points.append({"step": step, "match": match, **means})
    return points


def caught_up(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> int | None:
    """The first step at which the other curve is as good as the end of ours: by LPIPS, or PSNR without its weights."""
    key, sign = ("lpips", -1) if "lpips" in ours[-1] else ("psnr", 1)
    reached = [point["step"] for point in theirs if sign * point[key] >= sign * ours[-1][key]]
    return reached[0] if reached else None


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--models", nargs="+", default=["lenet5"])
    made.add_argument("--long", type=int, default=0, help="steps of a long run of Inverting Gradients; 0: none")
    made.add_argument("--autoencoder", default="", help="file of gradveil train-generator autoencoder")
    return made.parse_args()


if __name__ == "__main__":
    main()
