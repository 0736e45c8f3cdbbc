"""ATS table 4, LODA table 1 and what ROG claims: each defense on updates, gradients and the model, attacked twice.

    PYTHONPATH=src:papers/ats python3 papers/ats/defenses.py --root DATA --weights W.safetensors --out OUT \\
        --images 50 --steps 1000 --device cuda --precision tf32

unaware: Inverting Gradients with TV 1e-2; adaptive: the same with the surrogate of the defense. All rows unless named.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from victims import attacked, bench_of, tell

from gradveil.attacks.invertgrad import invertgrad
from gradveil.data import load
from gradveil.defenses import DEFENSES
from gradveil.defenses.base import Defense
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
    "dpsgd, clip 1, noise 0.01": ("dpsgd", {"clip": 1.0, "noise": 0.01}),
}


def main() -> None:
    args = arguments()
    bench = bench_of(args, load("cifar100", root=args.root, split="test"), args.weights)
    for label in args.rows or ROWS:
        name, options = ROWS[label]
        defense: Defense = DEFENSES[name](**options)
        attackers = ("unaware", "adaptive") if defense.has_adaptive_attacker else ("unaware",)
        for attacker in attackers:
            seen, truth = bench.observed(defense, args.images, aware=attacker == "adaptive", first=args.first)
            attack = invertgrad(steps=args.steps, tv=args.tv)
            sent = encoded_size({key: update[0].cpu() for key, update in seen.update.items()})
            head = {"defense": label, "attacker": attacker, "steps": args.steps, "images": args.images}
            head |= {"first": args.first, "bytes": sent}
            tell(head | attacked(attack, seen, truth, bench, defense), args.out)


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
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    return parser.parse_args()


if __name__ == "__main__":
    main()
