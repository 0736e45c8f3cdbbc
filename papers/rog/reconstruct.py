"""ROG against Inverting Gradients at equal steps and at equal time, without its parts, on its way (fig. 2 to 5, 16).

    PYTHONPATH=src python3 papers/rog/reconstruct.py --root DATA --out reconstruct.jsonl [--enhancer FILE]

Batches of 16, five local steps, 128 pixels, labels known, no defense. `equal-time` gives Inverting Gradients the steps
that it can take while ROG runs, if these are others by more than a tenth; `--long 2000` gives it more (the paper: 10^4)
and says after how many it was as good as ROG at its end, if it ever was. Its step size follows the number of steps, so
the long run is one of its own, on the first `--long-clients`. Curves are of the same searches as the figures, `seconds`
are of the search alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor
from victims import Bench, bench_of, parser, tell

from gradveil.attacks import ATTACKS
from gradveil.core.defense import Defense
from gradveil.engine.inversion import Inversion

MOMENTS = 30
TV = 1e-2  # the middle one of `invertgrad`'s weights, and that of `rog`
ROG, INVERTGRAD, LONG = "rog", "invertgrad", "invertgrad long"
NO_PROJECTION, AUTOENCODER = "no projection", "rog + autoencoder"
CURVES = (ROG, NO_PROJECTION, AUTOENCODER, LONG)
CASES = (ROG, INVERTGRAD, NO_PROJECTION, AUTOENCODER, "rog-code", "rog-paper", LONG)


def main() -> None:
    args = arguments()
    for model in args.models:
        bench = bench_of(args, model)
        head = {"model": model, "local_steps": args.local_steps, "size": args.size}
        found: dict[str, dict[str, Any]] = {}
        attacked(bench, inverting(2), 1, ())  # the first attack of a process takes longer
        for name, attack in cases(args).items():
            clients = args.long_clients if name == LONG else args.clients
            found[name] = attacked(bench, attack, clients, moments(attack.steps) if name in CURVES else ())
            tell(head | {"case": name, "clients": clients, "steps": attack.steps} | found[name], args.out)
            told_curve(head | {"curve": name, "clients": clients}, found[name], args)
        compared(bench, head, found, args)


def cases(args: argparse.Namespace) -> dict[str, Inversion]:
    """Equal steps, but for the long one. Each is told with and without the enhancer if there is one."""
    found: dict[str, Any] = {name: rog_like(args, name) for name in (ROG, "rog-code", "rog-paper")}
    found |= {INVERTGRAD: inverting(args.steps), LONG: inverting(args.long) if args.long else None}
    found[NO_PROJECTION] = rog_like(args, space="pixels")
    given = {"space": "autoencoder", "weights": args.autoencoder}
    found[AUTOENCODER] = rog_like(args, **given) if args.autoencoder else None
    return {name: found[name] for name in CASES if name in args.cases and found[name] is not None}


def rog_like(args: argparse.Namespace, name: str = ROG, **options: Any) -> Any:
    return ATTACKS[name](steps=args.steps, rate=args.rate, **options)


def inverting(steps: int) -> Any:
    return ATTACKS["invertgrad"](steps=steps, tv=TV)


def attacked(bench: Bench, attack: Inversion, clients: int, steps: tuple[int, ...]) -> dict[str, Any]:
    seen, truth = bench.observed(clients, Defense())
    return bench.attacked(attack, seen, truth, steps)


def moments(steps: int) -> tuple[int, ...]:
    """Closer together at the beginning, where a search moves most."""
    return tuple(torch.logspace(0, 1, MOMENTS, base=steps).round().int().unique().tolist())


def told_curve(head: dict[str, Any], line: dict[str, Any], args: argparse.Namespace) -> None:
    points = [{k: v if k == "step" else mean(v) for k, v in moment.items()} for moment in line.get("moments", ())]
    if points:
        tell(head | {"points": points}, args.out)


def mean(values: Tensor) -> float:
    return round(values.mean().item(), 4)


def compared(bench: Bench, head: dict[str, Any], found: dict[str, dict[str, Any]], args: argparse.Namespace) -> None:
    """Inverting Gradients in ROG's time, and the steps after which others were as good as ROG."""
    if ROG not in found:
        return
    if INVERTGRAD in found:
        budget = max(1, round(args.steps * found[ROG]["seconds"] / max(found[INVERTGRAD]["seconds"], 0.01)))
        line: dict[str, Any] = {"as": INVERTGRAD}
        if abs(budget - args.steps) > args.steps / 10:
            line = attacked(bench, inverting(budget), args.clients, ())
        tell(head | {"case": "invertgrad equal-time", "clients": args.clients, "steps": budget} | line, args.out)
    curves = {name: line["moments"] for name, line in found.items() if "moments" in line}
    reached = {name: caught_up(curves[ROG], points) for name, points in curves.items()}
    tell(head | {"as good as rog after": reached}, args.out)


def caught_up(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, int | None]:
    """The first step at which the other was as good as ROG at its end, on the clients of both."""
    report_of: dict[str, int | None] = {}
    for metric, sign in {"lpips": -1, "psnr": 1}.items():
        if metric in ours[-1]:
            count = min(len(ours[-1][metric]), len(theirs[-1][metric]))
            end = sign * ours[-1][metric][:count].mean()
            reached = [point["step"] for point in theirs if sign * point[metric][:count].mean() >= end]
            report_of[metric] = reached[0] if reached else None
    return report_of


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--models", nargs="+", default=["lenet5"])
    made.add_argument("--cases", "--only", nargs="+", default=CASES, choices=CASES, help="all unless given")
    made.add_argument("--long", type=int, default=0, help="steps of a long run of Inverting Gradients; 0: none")
    made.add_argument("--long-clients", type=int, default=1)
    made.add_argument("--autoencoder", default="", help="file of gradveil train-generator autoencoder")
    return made.parse_args()


if __name__ == "__main__":
    main()
