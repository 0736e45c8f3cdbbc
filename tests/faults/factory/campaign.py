"""Many faults and many healthy bases, on several processes, with progress."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import TextIO

import torch

import gradveil
from factory.play import BASES, CATALOGUE, Result, play

# seeds of a base, of a fault of records, and of a fault that needs a run of its own
PER_BASE, PER_STORED, PER_PLAYED = 7, 45, 7


@dataclass(frozen=True, kw_only=True)
class Job:
    """A kind of fault, or `base:NAME`, with its seeds."""

    kind: str
    seed: int
    base_seed: int
    shared: Path

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.seed}"


def plan(shared: Path, seed: int = 0, share: float = 1.0, kinds: Sequence[str] = ()) -> list[Job]:
    """Bases first, since faults of records change their runs; then faults in random order: the time left is honest."""
    first = 1000 * seed
    bases = [(f"base:{name}", at, at) for name in BASES for at in range(first, first + max(1, round(share * PER_BASE)))]
    faults = [
        (name, at, first + at % PER_BASE)
        for name, fault in CATALOGUE.items()
        for at in range(first, first + max(1, round(share * (PER_STORED if fault.when == "records" else PER_PLAYED))))
    ]
    for jobs in (bases, faults):
        Random(seed).shuffle(jobs)
    chosen = [job for job in (*bases, *faults) if not kinds or job[0] in kinds]
    return [Job(kind=kind, seed=at, base_seed=base, shared=shared) for kind, at, base in chosen]


def run_job(job: Job) -> Result:
    start = time.monotonic()
    return replace(play(job.kind, job.seed, job.base_seed, job.shared), seconds=time.monotonic() - start)


def run_all(
    processes: int, seed: int, share: float, kinds: Sequence[str], log: TextIO, state: Path | None = None
) -> list[Result]:
    """The results of all jobs; false ones are printed as they come. With a `state` file a campaign goes on."""
    with tempfile.TemporaryDirectory() as shared:
        jobs = plan(Path(shared), seed, share, kinds)
        known = read_results(state) if state else {}
        results = [known[job.name] for job in jobs if job.name in known]
        left = [job for job in jobs if job.name not in known]
        start = shown = time.monotonic()
        for number, result in enumerate(play_all(left, processes), 1):
            results.append(result)
            if state:
                keep_result(state, result)
            if result.is_false:
                log.write(f"\nFALSE {describe(result)}\n")
            if time.monotonic() - shown > 2 or number == len(left):
                shown = time.monotonic()
                log.write(show_progress(results, len(jobs), (shown - start) / number))
                log.flush()
    return results


@cache
def hash_code() -> str:
    """Of the package and the factory: results of other code are not taken for results of this one."""
    homes = Path(gradveil.__file__).parent, Path(__file__).parent
    files = [file for home in homes for file in sorted(home.rglob("*.py"))]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def read_results(state: Path) -> dict[str, Result]:
    lines = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    found = [Result(**one["result"]) for one in lines if one["code"] == hash_code()]
    return {name_of(result): result for result in found}


def keep_result(state: Path, result: Result) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.open("a") as file:
        file.write(json.dumps({"code": hash_code(), "result": asdict(result)}) + "\n")


def name_of(result: Result) -> str:
    return f"{result.kind or 'base:' + result.base}/{result.seed}"


def play_all(jobs: Sequence[Job], processes: int) -> Iterator[Result]:
    """In no order. A process that dies ends it with an error: nothing is left out silently."""
    if processes < 2:
        yield from map(run_job, jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for done in as_completed([pool.submit(run_job, job) for job in jobs]):
            yield done.result()


def show_progress(results: Sequence[Result], of: int, seconds_each: float) -> str:
    false = sum(result.is_false for result in results)
    left = seconds_each * (of - len(results)) / 60
    return f"\r{len(results):,} of {of:,}, {false} false, {left:.0f} min left   "


def describe(result: Result) -> str:
    """One that went wrong, and how to see it again."""
    what = f"--kind {result.kind or 'base:' + result.base} --at {result.seed}"
    return f"{result.kind or 'healthy'} on {result.base}: {result.result}  ({what})\n  {result.why}"
