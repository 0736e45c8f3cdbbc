"""The best and the worst pictures of large batches (fig. 13 and 14): ROG on 16, 64 and 128 pictures at once.

    PYTHONPATH=src python3 papers/rog/batches.py --root DATA --out batches.jsonl --page batches.html

The 160 victims hold one batch of 128, two of 64 and ten of 16. Best and worst are by LPIPS, as in the paper, or by PSNR
where there are no LPIPS weights. Labels repeat in the larger batches, and from a gray start pictures of one label move
alike for ever; `--start uniform` tells them apart. `--page` shows the sixteen best and the sixteen worst of each size,
or its halves.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from pictures import page, sheet
from torch import Tensor
from victims import VICTIMS, bench_of, parser, tell

from gradveil.attacks import ATTACKS
from gradveil.core.defense import Defense

SHOWN = 16


def main() -> None:
    args = arguments()
    bench = bench_of(args)
    parts: list[str] = []
    for size in args.batches:
        clients = min(args.clients, VICTIMS // size)
        seen, truth = bench.observed(clients, Defense(), batch=size)
        attack: Any = ATTACKS["rog"](steps=args.steps, rate=args.rate, start=args.start)
        line = bench.attacked(attack, seen, truth)
        head = {"batch": size, "clients": clients, "steps": args.steps, "model": args.model, "start": args.start}
        tell(head | extremes(line) | line, args.out)
        parts += shown(size, line, truth.private.images.float().cpu())
    if args.page:
        args.page.write_text(page("Best and worst of a batch", parts))


def order_of(line: dict[str, Any]) -> Tensor:
    """Places of the pictures from the best to the worst."""
    by = line.get("lpips_enhanced") or line.get("lpips")
    return torch.tensor(by["each"]).argsort() if by else torch.tensor(line["psnr"]["each"]).argsort(descending=True)


def extremes(line: dict[str, Any]) -> dict[str, Any]:
    """Mean scores of the best and of the worst sixteenth, at least one."""
    order, report = order_of(line), {}
    count = max(1, len(order) // 16)
    for key in [key for key, value in line.items() if isinstance(value, dict) and "each" in value and key != "loss"]:
        each = torch.tensor(line[key]["each"])
        report |= {f"{key}_of_best": round(each[order[:count]].mean().item(), 4)}
        report |= {f"{key}_of_worst": round(each[order[-count:]].mean().item(), 4)}
    return report


def shown(size: int, line: dict[str, Any], originals: Tensor) -> list[str]:
    order = order_of(line)
    rows = {"original": originals, **{name or "ROG": images for name, images in line["images"].items()}}
    flat = {name: images.flatten(0, 1) for name, images in rows.items()}
    count = min(SHOWN, len(order) // 2)
    ends = {"best": order[:count], "worst": order[-count:]}
    return [sheet(f"Batch of {size}, {name}", {k: x[at] for k, x in flat.items()}) for name, at in ends.items()]


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--batches", type=int, nargs="+", default=[16, 64, 128])
    made.add_argument("--start", default="gray", choices=("gray", "uniform"), help="gray keeps equal labels equal")
    made.add_argument("--page", type=Path)
    return made.parse_args()


if __name__ == "__main__":
    main()
