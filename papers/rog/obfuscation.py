"""ROG against compressed and defended updates (fig. 6 to 9), by attackers who know of it and who do not.

    PYTHONPATH=src python3 papers/rog/obfuscation.py --root DATA --out obfuscation.jsonl [--enhancer FILE]

The round of section 4.2. A cell is a line as soon as it is done, the most asked for first; no cell begins after
`--seconds`. FedCDP's noise is set by the signal-to-noise ratio of the clipped mean gradient of the first local step,
all parameters together, averaged over the clients; the clients' own gradients are used for that, by the experimenter
and not by the attacker. What knowing it gives is the clipping: where that changes no client's update (`clipped` is the
share of its length), the informed attack would be the other one, and is not run. `sign` is told three times to those
who know: equation 15 to the letter, and with tanh(sharpness u / mean |u|); those who do not know see the same signs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from victims import BATCH, Bench, bench_of, parser, tell

from gradveil.attacks import ATTACKS
from gradveil.core.defense import Defense
from gradveil.defenses import DEFENSES
from gradveil.defenses.fedcdp import FedCdp

RATIOS = (0, -10, -20, -5, -15)  # dB
NOTHING = 1e-6  # of an update's length: what rounding alone may change
UNAWARE, AWARE = "unaware", "aware"
FIRST: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "none": ("none", {}, (UNAWARE,)),
    "uniform 3 bits": ("uniform", {"bits": 3}, (UNAWARE, AWARE)),
    "qsgd 3 bits": ("qsgd", {"bits": 3}, (UNAWARE, AWARE)),
    "topk 0.95": ("topk", {"sparsity": 0.95}, (UNAWARE, AWARE)),
    "sign, sharpness 1": ("sign", {"sharpness": 1.0}, (UNAWARE, AWARE)),
    "soteria 0.8": ("soteria", {"rate": 0.8}, (UNAWARE, AWARE)),
    "precode": ("precode", {}, (UNAWARE, AWARE)),
}
LAST: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "sign, tanh(u)": ("sign", {"sharpness": 0.0}, (AWARE,)),
    "sign, sharpness 3": ("sign", {"sharpness": 3.0}, (AWARE,)),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A defense, who attacks it, and what else is told of it."""

    label: str
    defense: Defense
    attacker: str
    report: dict[str, Any]


def main() -> None:
    args, begin = arguments(), time.monotonic()
    bench = bench_of(args)
    for cell in cells(bench, args):
        if time.monotonic() - begin > args.seconds:
            print(f"left out: {cell.label}, {cell.attacker}", flush=True)
            continue
        head = {"defense": cell.label, "attacker": cell.attacker, "model": args.model, "clients": args.clients}
        about = {"steps": args.steps, "options": repr(cell.defense), **cell.to_metadata}
        tell(head | about | attacked(bench, cell, args), args.out)


def attacked(bench: Bench, cell: Cell, args: argparse.Namespace) -> dict[str, Any]:
    """Signs do not tell how strong a picture is, so theirs are equalized too."""
    if cell.attacker == AWARE and cell.to_metadata.get("clipped", 1.0) < NOTHING:
        return {"as": UNAWARE}
    finish = "equalize" if type(cell.defense).__name__ == "Sign" else "clamp"
    attack: Any = ATTACKS[args.attack](steps=args.steps, rate=args.rate, finish=finish)
    seen, truth = bench.observed(args.clients, cell.defense, aware=cell.attacker == AWARE)
    return bench.attacked(attack, seen, truth)


def cells(bench: Bench, args: argparse.Namespace) -> Iterator[Cell]:
    yield from plain(FIRST, args)
    if args.ratios and wanted("fedcdp", args):
        power, clipped = clipped_power(bench, args.clients), clipped_share(bench, args.clients)
        for attacker in args.attackers:  # the informed one has a gradient for every picture, and takes longest
            for ratio in args.ratios:
                defense = FedCdp(noise=noise_for(power, ratio))
                yield Cell(
                    label=f"fedcdp {ratio:g} dB", defense=defense, attacker=attacker, report={"clipped": clipped}
                )
    yield from plain(LAST, args)


def plain(rows: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]], args: argparse.Namespace) -> Iterator[Cell]:
    for label, (name, options, attackers) in rows.items():
        for attacker in [one for one in attackers if one in args.attackers and wanted(name, args)]:
            yield Cell(label=label, defense=DEFENSES[name](**options), attacker=attacker, report={})


def wanted(name: str, args: argparse.Namespace) -> bool:
    return not args.only or name in args.only


def clipped_power(bench: Bench, clients: int) -> float:
    """Mean square of a number of the clipped mean gradient, of the first local step."""
    one_step = replace(bench, local_steps=1)
    seen, _ = one_step.observed(clients, FedCdp(noise=0.0))
    rate = seen.training.rate
    total = sum(float((u / rate).square().sum()) for u in seen.update.values())
    return total / sum(u.numel() for u in seen.update.values())


def clipped_share(bench: Bench, clients: int) -> float:
    """How much of the length of the clients' updates clipping takes, all together."""
    sent, _ = bench.observed(clients, Defense())
    clipped, _ = bench.observed(clients, FedCdp(noise=0.0))
    taken = sum(float((u - clipped.update[name]).square().sum()) for name, u in sent.update.items())
    return math.sqrt(taken / sum(float(u.square().sum()) for u in sent.update.values()))


def noise_for(power: float, ratio: float) -> float:
    """The `noise` of `fedcdp` whose mean over a batch has this signal-to-noise ratio in dB."""
    deviation = math.sqrt(power / 10 ** (ratio / 10))
    return deviation * math.sqrt(BATCH) / FedCdp().clip


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--attack", default="rog")
    made.add_argument("--ratios", type=float, nargs="*", default=RATIOS)
    made.add_argument("--only", nargs="*", default=(), help="names of defenses; all unless given")
    made.add_argument("--attackers", nargs="+", default=(UNAWARE, AWARE), choices=(UNAWARE, AWARE))
    made.add_argument("--seconds", type=float, default=math.inf, help="after which no cell begins")
    return made.parse_args()


if __name__ == "__main__":
    main()
