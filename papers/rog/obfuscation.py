"""ROG against compressed and defended updates (fig. 6 to 9), by attackers who know of it and who do not.

    PYTHONPATH=src python3 papers/rog/obfuscation.py --root DATA --out obfuscation.jsonl [--enhancer FILE]

The round of section 4.2. A cell is a line as soon as it is done. FedCDP's noise is set by the signal-to-noise ratio of
the clipped mean gradient of the first local step, all parameters together, averaged over the clients; the clients' own
gradients are used for that, by the experimenter and not by the attacker. `sign` is told three times: equation 15 to the
letter, and with tanh(sharpness u / mean |u|).
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import Any

from victims import BATCH, Bench, bench_of, parser, tell

from gradveil.attacks import ATTACKS
from gradveil.defenses import DEFENSES
from gradveil.defenses.base import Defense
from gradveil.defenses.fedcdp import FedCdp

RATIOS = (0, -5, -10, -15, -20)  # dB
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "uniform 3 bits": ("uniform", {"bits": 3}),
    "qsgd 3 bits": ("qsgd", {"bits": 3}),
    "topk 0.95": ("topk", {"sparsity": 0.95}),
    "sign, tanh(u)": ("sign", {"sharpness": 0.0}),
    "sign, sharpness 1": ("sign", {"sharpness": 1.0}),
    "sign, sharpness 3": ("sign", {"sharpness": 3.0}),
    "soteria 0.8": ("soteria", {"rate": 0.8}),
    "precode": ("precode", {}),
}


def main() -> None:
    args = arguments()
    bench = bench_of(args)
    for name, defense in defenses(bench, args).items():
        for aware in (False, True):
            if name == "none" and aware:
                continue
            line = cell(bench, defense, aware, args)
            head = {"defense": name, "attacker": "aware" if aware else "unaware", "model": args.model}
            tell(head | {"clients": args.clients, "steps": args.steps, "options": repr(defense)} | line, args.out)


def cell(bench: Bench, defense: Defense, aware: bool, args: argparse.Namespace) -> dict[str, Any]:
    """Signs do not tell how strong a picture is, so theirs are equalized."""
    finish = "equalize" if type(defense).__name__ == "Sign" else "clamp"
    attack: Any = ATTACKS[args.attack](steps=args.steps, finish=finish)
    seen, truth = bench.observed(args.clients, defense, aware=aware)
    return bench.attacked(attack, seen, truth)


def defenses(bench: Bench, args: argparse.Namespace) -> dict[str, Defense]:
    made = {label: DEFENSES[name](**options) for label, (name, options) in PLAIN.items()}
    power = clipped_power(bench, args.clients)
    made |= {f"fedcdp {ratio} dB": FedCdp(noise=noise_for(power, ratio)) for ratio in args.ratios}
    return {label: one for label, one in made.items() if not args.only or label.split()[0].strip(",") in args.only}


def clipped_power(bench: Bench, clients: int) -> float:
    """Mean square of a number of the clipped mean gradient, of the first local step."""
    one_step = replace(bench, local_steps=1)
    seen, _ = one_step.observed(clients, FedCdp(noise=0.0))
    rate = seen.training.rate
    total = sum(float((u / rate).square().sum()) for u in seen.update.values())
    return total / sum(u.numel() for u in seen.update.values())


def noise_for(power: float, ratio: float) -> float:
    """The `noise` of `fedcdp` whose mean over a batch has this signal-to-noise ratio in dB."""
    deviation = math.sqrt(power / 10 ** (ratio / 10))
    return deviation * math.sqrt(BATCH) / FedCdp().clip


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--attack", default="rog")
    made.add_argument("--ratios", type=float, nargs="*", default=RATIOS)
    made.add_argument("--only", nargs="*", default=(), help="names of defenses; all unless given")
    return made.parse_args()


if __name__ == "__main__":
    main()
