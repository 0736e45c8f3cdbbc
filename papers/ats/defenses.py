"""ATS table 4, LODA table 1 and what ROG claims: each defense on updates, gradients and the model, attacked twice.

    PYTHONPATH=src:papers/ats python3 papers/ats/defenses.py --root DATA --weights W.safetensors --out OUT \\
        --images 50 --steps 1000 --device cuda --precision tf32

unaware: Inverting Gradients with TV 1e-2; adaptive: the same with the surrogate of the defense, unless that is none at
all. All rows unless named. Cells that OUT holds already are left out: the same command goes on where it was ended.
`defenses_table.py` joins pictures of several runs and makes the table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from victims import Bench, attacked, bench_of, tell

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.defense import Defense
from gradveil.data import load
from gradveil.defenses import DEFENSES
from gradveil.wire import encoded_size

ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "gaussian 1e-3": ("gaussian", {"scale": 1e-3}),
    "gaussian 1e-2": ("gaussian", {"scale": 1e-2}),
    "laplacian 1e-3": ("laplacian", {"scale": 1e-3}),
    "laplacian 1e-2": ("laplacian", {"scale": 1e-2}),
    "prune 0.7": ("prune", {"ratio": 0.7}),
    "prune 0.9": ("prune", {"ratio": 0.9}),
    "prune 0.95": ("prune", {"ratio": 0.95}),
    "prune 0.99": ("prune", {"ratio": 0.99}),
    "topk 0.95": ("topk", {"sparsity": 0.95}),
    "sign": ("sign", {}),
    "uniform 3 bits": ("uniform", {"bits": 3}),
    "qsgd 3 bits": ("qsgd", {"bits": 3}),
    "soteria 0.8": ("soteria", {"rate": 0.8}),
    "precode": ("precode", {}),
    "gaussian 0 dB": ("gaussian", {"snr": 0.0}),
    "gaussian -20 dB": ("gaussian", {"snr": -20.0}),
    "fedcdp, clip 4": ("fedcdp", {"clip": 4.0, "noise": 0.0}),
    "fedcdp 0 dB": ("fedcdp", {"snr": 0.0}),
    "fedcdp -20 dB": ("fedcdp", {"snr": -20.0}),
    "dpsgd, clip 1, noise 0.01": ("dpsgd", {"clip": 1.0, "noise": 0.01}),
    # 0.01 on each of ResNet20-4's 4.35 million numbers is -26 dB, which leaves nothing to tell apart; this is -6 dB
    "dpsgd, clip 1, noise 0.001": ("dpsgd", {"clip": 1.0, "noise": 1e-3}),
}
ATTACKERS = ("unaware", "adaptive")
CELL = ("model", "defense", "attacker", "steps", "rate", "first", "images")
OLD = {"model": None, "rate": 0.1, "first": 0}  # what the first lines do not say


def main() -> None:
    args = arguments()
    bench = bench_of(args, load("cifar100", root=args.root, split="test"), args.weights)
    for label in args.rows or ROWS:
        for attacker in args.attackers:
            head = head_of(label, attacker, args)
            if cell(head) not in done(args.out) and (attacker == "unaware" or knowing_helps(label)):
                tell(head | measured(label, attacker, bench, args), args.out)


def head_of(label: str, attacker: str, args: argparse.Namespace) -> dict[str, Any]:
    model = f"{args.model}, {args.weights.stem if args.weights else 'untrained'}"
    values = (
        model,
        label,
        ", without ".join([attacker, *args.without]),
        args.steps,
        args.rate,
        args.first,
        args.images,
    )
    return dict(zip(CELL, values, strict=True))


def cell(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((OLD | line)[key] for key in CELL)


def done(out: Path | None) -> set[tuple[Any, ...]]:
    lines = out.read_text().splitlines() if out is not None and out.is_file() else []
    return {cell(json.loads(line)) for line in lines}


def knowing_helps(label: str) -> bool:
    """Not where the attacker who knows the defense does as if there were none."""
    return row(label).surrogate({"fc.weight": torch.ones(1, 1)}) != Defense()


def row(label: str) -> Defense:
    name, options = ROWS[label]
    return DEFENSES[name](**options)


def measured(label: str, attacker: str, bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    defense = row(label)
    seen, truth = bench.observed(defense, args.images, aware=attacker == "adaptive", first=args.first)
    attack = invertgrad(steps=args.steps, tv=args.tv, rate=args.rate, without=tuple(args.without))
    report = attacked(attack, seen, truth, bench, defense)
    if attacker != "unaware":  # the same is sent, and encoding it takes as long as the attack
        return report
    return {"bytes": encoded_size({key: update[0].cpu() for key, update in seen.update.items()})} | report


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--model", default="resnet20-4")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the first picture: 50 goes on where 50 pictures ended")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tv", type=float, default=1e-2)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--without", nargs="+", default=[], metavar="LAYER", help="layers left out of the match")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--attackers", nargs="+", default=list(ATTACKERS), choices=ATTACKERS)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {'; '.join(ROWS)}")
    args = parser.parse_args()
    if unknown := set(args.rows) - set(ROWS):
        parser.error(f"no row {'; '.join(sorted(unknown))}, there are {'; '.join(ROWS)}")
    return args


if __name__ == "__main__":
    main()
