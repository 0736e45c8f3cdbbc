"""Searches that take a given time: a few steps are timed first, then as many as fit are run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.learned_inverter import learned_inverter
from gradveil.core.attack import Attack
from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed

TRIED, FEWEST, MOST = (10, 40), 40, 4800  # steps to time with, and steps of a search
TV = (1e-3, 1e-2, 1e-1)
PULLS = (0.0, 0.3, 10.0)  # to the inverter's pictures


def searches(file: Path, steps: int) -> dict[str, Attack]:
    """The same number of starts and steps each."""
    return {
        "search": invertgrad(steps=steps, tv=TV),
        "search from the inverter": learned_inverter(inverter=str(file), search=True, steps=steps, pull=PULLS, tv=1e-2),
    }


def run_searches(
    seen: Observation, file: Path, seconds: float, device: str
) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
    """The pictures [victim, ...] that each finds in so many seconds, as far as a few timed steps can tell."""
    compute = Compute(device=device)
    timed = [timed_run(searches(file, steps)["search"], seen, compute)[1] for steps in TRIED]
    each = max((timed[1] - timed[0]) / (TRIED[1] - TRIED[0]), 1e-4)
    fixed = max(timed[0] - TRIED[0] * each, 0.0)
    steps = int(min(max((seconds - fixed) / each, FEWEST), MOST))
    for name, attack in searches(file, steps).items():
        got, took = timed_run(attack, seen, compute)
        facts = {"steps": steps, "took": round(took, 2), "backend": got.backend, "match": float(got.loss.mean())}
        yield name, got.images.squeeze(1), facts


def timed_run(attack: Attack, seen: Observation, compute: Compute) -> tuple[Any, float]:
    start = time.monotonic()
    got = attack.reconstruct(seen, Seed(0), compute)
    if compute.device.startswith("cuda"):
        torch.cuda.synchronize()
    return got, time.monotonic() - start
