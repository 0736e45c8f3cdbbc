"""Planting and reading out a wide layer: Robbing the Fed and Curious Abandon Honesty, in milliseconds.

    PYTHONPATH=src python3 benchmarks/imprint.py --device cuda --out imprint.json
    OMP_NUM_THREADS=1 PYTHONPATH=src python3 benchmarks/imprint.py --neurons 512 --size 64 --batch 64

The gradient of the planted layer is made from random pictures as a client would, and is not timed. With the defaults
(256 pictures of 224 x 224, 4,096 units) it takes 2.5 GB, the layer as much. Each part is timed several times and the
shortest counts; on a GPU the clock waits for the device, and the most memory that a part needs beyond what was there
before it is told, in bytes and in layers.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.attacks.cah import cah
from gradveil.attacks.imprint.module import Imprint
from gradveil.attacks.rtf import rtf
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch

CLASSES = 10


def main() -> None:
    args = arguments()
    sizes = {"neurons": args.neurons}
    attacks = {"rtf": rtf(**sizes), "rtf sparse": rtf(sparse=True, **sizes), "cah": cah(examples=args.batch, **sizes)}
    pictures = shades(args.batch + args.public, args.size, args.device)
    known = Batch(pictures[args.batch :], torch.zeros(args.public, CLASSES, device=args.device))
    result = {
        "what": f"planting and reading out {args.neurons} units, {args.batch} pictures of {args.size} x {args.size}",
        "command": shlex.join(["python3", "benchmarks/imprint.py", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "rows": [timed(name, attack, pictures[: args.batch], known, args) for name, attack in attacks.items()],
    }
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--neurons", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--public", type=int, default=256, help="public pictures")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def shades(count: int, size: int, device: str) -> Tensor:
    """Noise of different brightness, so that pictures fall into different bins."""
    rng = Seed(0).rng()
    shade = torch.rand(count, 1, 1, 1, generator=rng)
    return (shade * torch.rand(count, 3, size, size, generator=rng)).to(device)


def timed(name: str, attack: Any, pictures: Tensor, known: Batch, args: argparse.Namespace) -> dict[str, Any]:
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, CLASSES)).to(args.device)
    plant = clocked(lambda: attack.plant(model, known, Seed(0)), args)
    planting = peak(lambda: attack.plant(model, known, Seed(0)), args)
    seen = observed(attack.plant(model, known, Seed(0)), pictures)
    read = clocked(lambda: attack.reconstruct(seen, Seed(0)), args)
    reading = peak(lambda: attack.reconstruct(seen, Seed(0)), args)
    got = attack.reconstruct(seen, Seed(0))
    nearest = torch.cdist(got.images[0][got.found[0]].flatten(1), pictures.flatten(1)).amin(1)
    exact = int((nearest / pictures[0].numel() ** 0.5 < 1e-4).sum())
    report = {"attack": name, "plant_ms": plant, "read_ms": read, "found": int(got.found.sum()), "exact": exact}
    return report | memory("plant", planting, args) | memory("read", reading, args)


def observed(sent: nn.Module, pictures: Tensor) -> Observation:
    """The gradient of the planted layer as a client's pictures would leave it; of the rest, nothing."""
    name, imprint = next((n, layer) for n, layer in sent.named_modules() if isinstance(layer, Imprint))
    flat = pictures.flatten(1)
    with torch.no_grad():
        hidden = imprint.first(flat)
        high = 1.0 if isinstance(imprint.activation, nn.Hardtanh) else torch.inf
        pull = torch.randn(len(flat), imprint.back.shape[1], generator=Seed(1).rng()).to(flat)  # by the way on
        push = (pull @ imprint.back.T) * ((hidden > 0) & (hidden < high))
        update = {f"{name}.first.weight": (push.T @ flat)[None], f"{name}.first.bias": push.sum(0)[None]}
    labels = torch.eye(CLASSES, device=flat.device)[torch.arange(len(flat)) % CLASSES][None]
    _, channels, height, width = pictures.shape
    return Observation(
        model=sent,
        update=update,
        training=LocalTraining(),
        examples=len(flat),
        shape=(channels, height, width),
        classes=CLASSES,
        names=("client",),
        labels=labels,
    )


def clocked(work: Callable[[], object], args: argparse.Namespace) -> float:
    """Milliseconds, the shortest of several."""
    times = []
    for _ in range(args.repeats):
        _wait(args.device)
        start = time.perf_counter()
        work()
        _wait(args.device)
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def peak(work: Callable[[], object], args: argparse.Namespace) -> int | None:
    """Bytes beyond those that were taken before; None on a CPU, where torch does not count them."""
    if not args.device.startswith("cuda"):
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    _wait(args.device)
    return torch.cuda.max_memory_allocated() - before


def memory(part: str, taken: int | None, args: argparse.Namespace) -> dict[str, Any]:
    layer = 4 * args.neurons * 3 * args.size**2
    return {} if taken is None else {f"{part}_bytes": taken, f"{part}_layers": round(taken / layer, 2)}


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
