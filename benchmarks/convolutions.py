"""Milliseconds of one match on `vmap`: torch's own second derivatives of convolutions, our three maps, outer products.

    PYTHONPATH=src python3 benchmarks/convolutions.py --device cuda lenet5:1:16:128:5 resnet20-4:64:1:32:1

A case is MODEL:CLIENTS:PICTURES:PIXELS:LOCAL-STEPS. On a GPU the evaluation is captured as a graph and replayed, as an
attack does, so that launches do not count. One JSON line per case; `off` is the relative difference of the slopes. The
three maps are `trilinear.py`, outer products of linear layers `outer.py`, measured on top of the maps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.attacks.rog import rog
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed, uniform
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.engine import matcher
from gradveil.engine.distance import L2
from gradveil.engine.matcher import OneTrial, Vmap
from gradveil.engine.trilinear import Trilinear
from gradveil.models import MODELS

CLASSES, RATE, REPEATS = 100, 5e-3, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="MODEL:CLIENTS:PICTURES:PIXELS:LOCAL-STEPS")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="tf32", choices=("float32", "tf32"))
    asked = parser.parse_args()
    matcher.Trilinear = nullcontext  # type: ignore[assignment]  # which of the two runs is said below
    with Compute(device=asked.device, precision=asked.precision).active():
        for case in asked.cases:
            name, *numbers = case.split(":")
            print(json.dumps({"case": case} | compared(name, *map(int, numbers), device=asked.device)), flush=True)


def compared(name: str, clients: int, pictures: int, pixels: int, steps: int, device: str) -> dict[str, float]:
    match, fed = round_of(name, (clients, pictures, 3, pixels, pixels), steps, device)
    known = Vmap(match.one.by_outer_products())
    plain, slope = timed(lambda: match(fed), nullcontext(), device)
    maps, other = timed(lambda: match(fed), Trilinear(), device)
    outer, third = timed(lambda: known(fed), Trilinear(), device)
    off = max(float((one - slope).norm() / slope.norm()) for one in (other, third))
    report = {"torch_ms": plain, "maps_ms": maps, "outer_ms": outer, "ratio": plain / outer}
    return {key: round(value, 2) for key, value in report.items()} | {"off": off}


def round_of(name: str, shape: tuple[int, ...], steps: int, device: str) -> tuple[Vmap, Tensor]:
    like = torch.zeros((), device=device)
    model = MODELS[name](classes=CLASSES, shape=shape[2:]).to(device)
    labels = F.one_hot(torch.arange(shape[0] * shape[1], device=device) % CLASSES, CLASSES).float()
    scenario = Scenario(
        name="round",
        model=model,
        private=Batch(uniform(shape, Seed(0).rng(), like), labels.view(*shape[:2], -1)),
        names=tuple(f"c{i:04d}" for i in range(shape[0])),
        training=LocalTraining(steps=steps, rate=RATE),
    )
    seen = observe(scenario, Defense(), rog(), Seed(0))[0]
    return Vmap(OneTrial.of(seen, L2())), uniform(shape, Seed(5).rng(), like)


def timed(work: Callable[[], tuple[Tensor, Tensor]], how: AbstractContextManager, device: str) -> tuple[float, Tensor]:
    """Milliseconds of one evaluation, and its slope."""
    with how:
        for _ in range(3):
            slope = work()[1]
        replay = captured(work) if device.startswith("cuda") else work
        start = clock(device)
        for _ in range(REPEATS):
            replay()
        return 1e3 * (clock(device) - start) / REPEATS, slope


def captured(work: Callable[[], object]) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    return graph.replay


def clock(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
