"""The batched transformations against PIL, one picture after the other: all 50 entries of the library of ATS.

    OMP_NUM_THREADS=1 PYTHONPATH=src python3 benchmarks/transforms.py --images 256
    PYTHONPATH=src python3 benchmarks/transforms.py --device cuda --images 1024 --out transforms.json

Both get random pictures of 32 x 32 in their own form and leave the results in it: PIL is not charged for turning them
into tensors, which a training would have to do. Each entry is timed several times, PIL and batched in turn, and the
shortest counts. On a CPU these are times of the CPU on one thread, so that other load on the machine counts little; on
a GPU they are those of the clock, waiting for the device included. The results are compared level by level.

In a fresh process glibc may hand freed memory back to the system and fetch it again page by page, at every operation;
whether it does differs from run to run. It costs the batched form, whose blocks are of megabytes, and not PIL. The
page faults of the batched form are counted, and `--keep-memory` avoids them: give the numbers of both.

On a GPU a single operation on 256 small pictures is a matter of launches. `--captured` replays it from a CUDA graph, as
an attack that knows the policy runs it; `together` is the time of all 50 at once as one policy of 50 alternatives.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import PIL as pillow
import torch
from PIL import Image
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.transforms.library import LIBRARIES, Entry
from gradveil.transforms.policy import Draw, Policy

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "policies"))
from pil_transforms import PIL  # pyright: ignore[reportMissingImports]

SIZE = 32


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    if args.keep_memory:
        keep_memory()
    arrays = torch.randint(0, 256, (args.images, SIZE, SIZE, 3), generator=Seed(0).rng(), dtype=torch.uint8).numpy()
    rows = [timed(entry, arrays, args) for entry in LIBRARIES["ats-code"].entries]
    ours, theirs = sum(row["batched_ms"] for row in rows), sum(row["pil_ms"] for row in rows)
    result = {
        "what": f"all 50 entries of ats-code over {args.images} pictures of {SIZE} x {SIZE}, batched against PIL",
        "command": shlex.join(["python3", "benchmarks/transforms.py", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.machine(),
        "threads": 1,
        "versions": {"torch": torch.__version__, "pillow": pillow.__version__, "python": platform.python_version()},
        "pil_ms": theirs,
        "batched_ms": ours,
        "ratio": theirs / ours,
        "captured": args.captured,
        "together_ms": (at_once := together(arrays, args)),
        "together_ratio": theirs / at_once,
        "keep_memory": args.keep_memory,
        "page_faults": sum(row["page_faults"] for row in rows),
        "largest_difference": max(row["largest_difference"] for row in rows),
        "entries": rows,
    }
    show(result)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep-memory", action="store_true", help="spare the batched form page faults, see above")
    parser.add_argument("--captured", action="store_true", help="replay from a CUDA graph, see above")
    parser.add_argument("--out", type=Path, help="write the result to this file, as JSON")
    return parser.parse_args()


def keep_memory() -> None:
    """Freeing one large block tells glibc to hold on to memory from then on."""
    torch.empty(30 << 20, dtype=torch.uint8)


def tensors(arrays: np.ndarray, device: str) -> Tensor:
    return torch.from_numpy(arrays).permute(0, 3, 1, 2).float().contiguous().div(255).to(device)


def together(arrays: np.ndarray, args: argparse.Namespace) -> float:
    """Milliseconds of all entries for all pictures in one call."""
    count = len(LIBRARIES["ats-code"].entries)
    policy = Policy(LIBRARIES["ats-code"], tuple((place,) for place in range(count)))
    images = tensors(arrays, args.device).repeat(count, 1, 1, 1)
    signs = policy.draw(len(images), Seed(0).rng()).signs
    draw = Draw(torch.arange(count).repeat_interleave(len(arrays)), signs)
    clock = waiting if args.device == "cuda" else time.process_time
    return 1e3 * min(seconds(lambda: policy.apply(images, draw), clock)[0] for _ in range(args.repeats + 1))


def captured(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same work, replayed from a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


def timed(entry: Entry, arrays: np.ndarray, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of one entry for all pictures, and by how many levels the results differ at most."""
    amounts, images = drawn(entry, len(arrays)), tensors(arrays, args.device)
    there, each, files = amounts.to(args.device), amounts.tolist(), [Image.fromarray(array) for array in arrays]
    one_by_one, clock = PIL[entry.operation], waiting if args.device == "cuda" else time.process_time

    def by_pil() -> list[Image.Image]:
        return [one_by_one(file, amount) for file, amount in zip(files, each, strict=True)]

    def batched() -> Tensor:
        return entry.does.apply(images, there)

    run = captured(batched) if args.captured else batched
    apart = difference(run(), by_pil())  # which also warms up
    pairs = ((seconds(by_pil, clock), seconds(run, clock)) for _ in range(args.repeats))
    theirs, ours = zip(*pairs, strict=True)
    pil, (our, faults) = 1e3 * min(theirs)[0], min(ours)
    row = {"entry": str(entry), "pil_ms": pil, "batched_ms": 1e3 * our, "ratio": pil / (1e3 * our)}
    return row | {"page_faults": faults, "largest_difference": apart}


def drawn(entry: Entry, count: int) -> Tensor:
    """An amount for each picture; a sign of its own where the operation has one."""
    heads = torch.rand(count, generator=Seed(0).at("signs", str(entry)).rng(), dtype=torch.float64) < 0.5
    return torch.where(heads & entry.is_signed, -entry.amount, entry.amount).double()


def seconds(work: Callable[[], Any], clock: Callable[[], float]) -> tuple[float, int]:
    """And the page faults on the way."""
    begin, before = clock(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return clock() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def waiting() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def difference(ours: Tensor, theirs: list[Image.Image]) -> int:
    levels = (ours * 255).round().permute(0, 2, 3, 1).cpu().numpy()
    return int(np.abs(levels - np.stack([np.asarray(file) for file in theirs])).max())


def show(result: dict[str, Any]) -> None:
    seen = {row["entry"]: row for row in result["entries"]}
    for row in sorted(seen.values(), key=lambda row: row["ratio"]):
        print(
            f"{row['entry']:14} PIL {row['pil_ms']:7.2f} ms  batched {row['batched_ms']:7.3f} ms  {row['ratio']:6.1f} x"
        )
    print(f"all 50: PIL {result['pil_ms']:.0f} ms, batched {result['batched_ms']:.0f} ms, ratio {result['ratio']:.1f}")
    print(f"as one policy of 50 alternatives: {result['together_ms']:.1f} ms, ratio {result['together_ratio']:.1f}")
    print(f"largest difference: {result['largest_difference']} of 255 levels; page faults: {result['page_faults']:,}")


if __name__ == "__main__":
    main()
