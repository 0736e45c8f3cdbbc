"""Pictures per second of LODA's encoding: `python benchmarks/loda.py [--device cuda] [--steps 20] [loda-1 loda-2]`.

A few steps of Algorithm 1 are timed on random pictures and scaled to 500; the cache is left out. On a GPU, where a step
takes milliseconds, give 100 of them. The target there is 50,000 pictures of 32 pixels in under ten minutes. Prints one
JSON line per preset.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

import torch

from gradveil.core.compute import Compute, pick_device
from gradveil.defenses.loda.encode import at_once
from gradveil.defenses.loda.loda import PRESETS, Loda
from gradveil.experiment.provenance import device_name, now

STEPS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", metavar="PRESET", help="all if not given")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--extractor", default="", help="MODEL:FILE; untrained weights take as long")
    parser.add_argument("--precision", default="float32", choices=("float32", "tf32", "bf16"))
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    half = asked.precision == "bf16"
    compute = Compute(device=pick_device(asked.device), precision="float32" if half else asked.precision)
    pictures = torch.rand(1, 3, asked.size, asked.size, generator=torch.Generator().manual_seed(0)).to(compute.device)
    for name in asked.presets or PRESETS:
        extractor = asked.extractor or f"{asked.model}:untrained"
        defense = PRESETS[name](extractor=extractor, steps=asked.steps, cache=False, bf16=half)
        with compute.active():
            seconds = seconds_per_picture(defense, pictures)
        print(json.dumps(report_of(name, seconds, asked, compute)), flush=True)


def seconds_per_picture(defense: Loda, like: torch.Tensor) -> float:
    """Of 500 steps; what is not in the steps (starts, the first features) is measured and subtracted."""
    count = 2 * at_once(like)
    pictures = torch.rand(count, *like.shape[1:], generator=torch.Generator().manual_seed(1)).to(like)
    one = replace(defense, steps=1)
    one.encode(pictures)  # libraries choose their algorithms
    return (timed(defense, pictures) - timed(one, pictures)) / (defense.steps - 1) * STEPS / count


def timed(defense: Loda, pictures: torch.Tensor) -> float:
    start = time.perf_counter()
    defense.encode(pictures).sum().item()  # waits for the device
    return time.perf_counter() - start


def report_of(name: str, seconds: float, asked: argparse.Namespace, compute: Compute) -> dict[str, object]:
    return {
        "preset": name,
        "extractor": asked.extractor or asked.model,
        "size": asked.size,
        "precision": asked.precision,
        "device": device_name(compute.device),
        "threads": torch.get_num_threads(),
        "pictures_per_second": round(1 / seconds, 3),
        "minutes_for_50000": round(50_000 * seconds / 60, 1),
        "torch": torch.__version__,
        "date": now(),
    }


if __name__ == "__main__":
    main()
