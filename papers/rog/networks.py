"""How much the update of the round says about the pictures, and not only about their labels, network by network.

    PYTHONPATH=src python3 papers/rog/networks.py --root DATA --models lenet lenet5 --sizes 32 64 128

Squared distance to the first client's update, as a share of that update's own square, of the updates that other
pictures with the same labels would have sent: gray ones, noise, the client's own exchanged among each other, and those
on the straight way from gray to the truth. Where all are small there is little to search for. Minutes on a CPU.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from victims import BATCH, Bench, bench_of, parser, tell

from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed, uniform
from gradveil.engine.distance import L2
from gradveil.engine.matcher import OneTrial

WAY = (0.25, 0.5, 0.75, 0.9)


def main() -> None:
    args = arguments()
    for model in args.models:
        for size in args.sizes:
            args.size = size
            head = {"model": model, "size": size, "batch": BATCH, "local_steps": args.local_steps}
            tell(head | shares(bench_of(args, model)), args.out)


def shares(bench: Bench) -> dict[str, Any]:
    """What is left of the update when other pictures explain it: 0 for all of it, 1 for none."""
    seen, truth = bench.observed(1, Defense())
    assert seen.labels is not None
    one, labels, images = OneTrial.of(seen, L2(relative=True)), seen.labels[0], truth.private.images[0]
    update = {name: u[0] for name, u in seen.update.items()}
    gray = torch.full_like(images, 0.5)
    others = {"gray": gray, "noise": uniform(tuple(images.shape), Seed(0).at("noise").rng(), images)}
    others |= {"exchanged": images.roll(1, 0)}
    others |= {f"gray to truth {share}": gray.lerp(images, share) for share in WAY}
    with torch.no_grad():
        return {name: round(float(one(other, labels, update)), 4) for name, other in others.items()}


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--models", nargs="+", default=["lenet", "lenet5"])
    made.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128])
    return made.parse_args()


if __name__ == "__main__":
    main()
