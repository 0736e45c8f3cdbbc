"""Seconds of ROG's round (16 pictures of 128 pixels, five local steps, 100 steps of search), one client and many.

    PYTHONPATH=src python3 benchmarks/rog_round.py --device cuda --clients 32 --out rog-round.json

All clients are attacked at once (`vmap`, a CUDA graph on a GPU), and one after the other: by autograd as others do it
(`loop`), and with all that one alone can have (`vmap`). `--alone` of them are attacked one by one, since each takes as
long as the last. Pictures are drawn, no data is needed. Each time is that of whole attacks, setting up and capturing
graphs included, after a short one that warms the machine up.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from gradveil.attacks.rog import rog
from gradveil.core.compute import Backend, Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed, uniform
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.models import MODELS

CLASSES, RATE = 1000, 5e-3


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    seen = round_of(args)
    alone = [seen.take([client]) for client in range(min(args.alone, args.clients))]
    results = {
        f"vmap, {len(alone)} clients one by one": report_of("vmap one by one", timed(alone, args, "vmap")),
        f"loop, {len(alone)} clients one by one": report_of("loop one by one", timed(alone, args, "loop")),
        f"vmap, {args.clients} clients at once": report_of("vmap at once", timed([seen], args, "vmap")),
    }
    single, loop, many = (r["client_steps_per_second"] for r in results.values())
    summary = {
        "machine": torch.cuda.get_device_name() if args.device.startswith("cuda") else platform.processor(),
        "torch": torch.__version__,
        "settings": {k: v for k, v in vars(args).items() if k != "out"},
        "results": results,
        "throughput against one by one, loop": round(many / loop, 2),
        "throughput against one by one, vmap": round(many / single, 2),
    }
    print(json.dumps(summary, indent=1))
    if args.out is not None:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")


def report_of(name: str, result: dict[str, Any]) -> dict[str, Any]:
    """On the screen at once, in case the rest takes too long; what is short comes first."""
    print(json.dumps({name: result}), flush=True)
    return result


def round_of(args: argparse.Namespace) -> Observation:
    shape = (args.clients, args.batch)
    model = MODELS[args.model](classes=CLASSES, shape=(3, args.size, args.size)).to(args.device)
    like = torch.zeros((), device=args.device)
    images = uniform((*shape, 3, args.size, args.size), Seed(0).rng(), like)
    labels = F.one_hot(torch.arange(args.clients * args.batch) % CLASSES, CLASSES).float().view(*shape, -1)
    scenario = Scenario(
        name="round",
        model=model,
        private=Batch(images, labels.to(args.device)),
        names=tuple(f"c{i:04d}" for i in range(args.clients)),
        training=LocalTraining(steps=args.local_steps, rate=RATE),
    )
    return observe(scenario, Defense(), rog(), Seed(0))[0]


def timed(parts: list[Observation], args: argparse.Namespace, backend: Backend) -> dict[str, Any]:
    """One whole attack for each part, one after the other."""
    compute = Compute(device=args.device, precision=args.precision, backend=backend, chunk=args.chunk)
    attack = rog(steps=args.steps)
    replace(attack, steps=2).reconstruct(parts[0], Seed(1), compute)
    if args.device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    begin = clock(args.device)
    for part in parts:
        attack.reconstruct(part, Seed(1), compute)
    seconds, clients = clock(args.device) - begin, sum(len(part.names) for part in parts)
    peak = torch.cuda.max_memory_allocated() / 2**30 if args.device.startswith("cuda") else None
    each = {"seconds": round(seconds, 3), "seconds_per_client": round(seconds / clients, 3)}
    each |= {"client_steps_per_second": round(clients * args.steps / seconds, 2)}
    return each | ({} if peak is None else {"peak_gib": round(peak, 2)})


def clock(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--alone", type=int, default=2, help="clients that are attacked one by one")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--local-steps", type=int, default=5)
    parser.add_argument("--chunk", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
