"""`make faults`: the whole factory; exit code 1 if the gate fails. Stopped and begun again, it goes on."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

import torch

from factory.campaign import PER_BASE, Job, describe, run_all, run_job
from factory.play import CATALOGUE
from factory.table import passes, summarize, to_markdown, write

ROOT = Path(__file__).resolve().parents[3]
PAGE, STATE = ROOT / "docs/verdict.md", ROOT / "runs/faults.jsonl"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m factory", description=__doc__)
    parser.add_argument("--kind", action="append", default=[], help="only this kind, or base:NAME; repeatable")
    parser.add_argument("--at", type=int, help="with one --kind: this seed alone, with the reasons")
    parser.add_argument("--seed", type=int, default=0, help="another thousand of seeds for each number (default 0)")
    parser.add_argument("--share", type=float, default=1.0, help="of the number of faults (default 1)")
    parser.add_argument("--processes", type=int, default=2, help="how many at once (default 2)")
    parser.add_argument("--state", type=Path, default=STATE, help="results, with which a campaign goes on")
    parser.add_argument("--list", action="store_true", help="print the kinds and stop")
    parser.add_argument("--no-table", action="store_true", help="leave docs/verdict.md as it is")
    return parser.parse_args()


def main() -> int:
    given = read_arguments()
    torch.set_num_threads(1)
    if given.list:
        for fault in CATALOGUE.values():
            print(f"{fault.level:11} {fault.name:36} {fault.text}")
        return 0
    if given.at is not None:
        return play_one(given.kind[0], given.at)
    results = run_all(given.processes, given.seed, given.share, given.kind, sys.stderr, given.state)
    print(f"\n{summarize(results)}")
    if not given.kind and not given.no_table:
        write(PAGE, to_markdown(results, given.seed, version("gradveil")))
    return 0 if passes(results) else 1


def play_one(kind: str, at: int) -> int:
    import tempfile

    with tempfile.TemporaryDirectory() as shared:
        base_seed = at if kind.startswith("base:") else at - at % 1000 + at % PER_BASE
        result = run_job(Job(kind=kind, seed=at, base_seed=base_seed, shared=Path(shared)))
    print(describe(result))
    return int(result.is_false)


if __name__ == "__main__":
    sys.exit(main())
