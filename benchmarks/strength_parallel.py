"""`gradveil bench strength` with a process for each setting, one thread each, as many at once as there are cores.

    PYTHONPATH=src python3 benchmarks/strength_parallel.py --out runs/strength --workers 16 \
        --pictures cifar10=cifar10.npz --pictures faces=faces.npz --seconds 560

Settings that take longest begin first. A setting has its own file in the folder, so processes do not meet, and what is
there is not run again, attack by attack: the same command goes on after `--seconds`. It needs neither typer nor jinja2.
`--table` makes the table of all settings in the folder that are complete, on any machine that has jinja2.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from gradveil.bench.strength.cases import make_case
from gradveil.bench.strength.measure import Strength, is_complete, read_or_run
from gradveil.bench.strength.settings import Setting


def main() -> None:
    args = arguments()
    given = dict(text.split("=", 1) for text in args.pictures)
    strength = Strength(extent=args.settings, pictures=given, only=tuple(args.only), steps=args.steps)
    if args.table:
        from gradveil.bench.strength.run import table_of
        from gradveil.bench.strength.table import sentences

        print("\n".join(sentences(table_of(args.out))))
        return
    if args.one:
        torch.set_num_threads(1)
        (setting,) = Strength(extent=args.settings, pictures=given, only=(args.one,), steps=args.steps).settings()
        read_or_run(strength, make_case(setting, given, strength.seed), args.out / f"{setting.name}.json")
        return
    left = missing(strength, args.out)
    print(f"{len(left)} settings are to be run", flush=True)
    run_all(left, args.workers, time.monotonic() + args.seconds)
    print(f"missing: {', '.join(one.name for one in missing(strength, args.out)) or 'none'}")


def missing(strength: Strength, folder: Path) -> list[Setting]:
    """What takes longest comes first."""
    left = [one for one in strength.settings() if not is_complete(folder / f"{one.name}.json")]
    return sorted(left, key=duration, reverse=True)


def duration(setting: Setting) -> tuple[float, float]:
    """What takes longest is greatest: the time of a search, then that of what all pay for its setup."""
    return setting.search_steps("full") * setting.cost, setting.cost


def run_all(settings: list[Setting], workers: int, end: float) -> None:
    """What still runs at the end is stopped: it is run again the next time."""
    waiting, running = list(settings), dict[str, subprocess.Popen[bytes]]()
    begun = time.monotonic()
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < workers:
            setting = waiting.pop(0)
            running[setting.name] = start(setting.name)
        for name in list(finished(running)):
            code = running.pop(name).returncode
            print(f"{time.monotonic() - begun:6.0f} s  {name}: exit code {code}", flush=True)
        time.sleep(0.2)
    for process in running.values():
        process.kill()
        process.wait()


def finished(running: dict[str, subprocess.Popen[bytes]]) -> Iterator[str]:
    return (name for name, process in running.items() if process.poll() is not None)


def start(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *sys.argv, "--one", name],
        env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--settings", choices=("quick", "full"), default="full")
    parser.add_argument("--pictures", action="append", default=[], metavar="KIND=PATH")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop whatever still runs after so long")
    parser.add_argument("--table", action="store_true", help="run nothing, make the table of what is there")
    parser.add_argument("--one", help="the setting of a process that this script started")
    return parser.parse_args()


if __name__ == "__main__":
    main()
