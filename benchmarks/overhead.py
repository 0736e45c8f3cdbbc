"""What gradveil costs beside its attacks: processor time of `gradveil --help`, and the share of a run that keeps it.

    python benchmarks/overhead.py

The aims: help within 0.5 s of processor time, and 2 % of a run of seconds for journal, pictures and hashes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gradveil.audit.audit
from gradveil.audit.audit import run_audit
from gradveil.config import build, from_tables
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal

KEEPING = (
    *((Journal, name) for name in ("append", "__init__")),
    *((RunFolder, name) for name in ("save_pictures", "prepare", "check", "finish")),
    (gradveil.audit.audit, "origin_of"),
)
AUDIT = {
    "scenario": {"data": "digits", "model": "lenet", "images": 8},
    "attack": {"invertgrad": {"steps": 80, "restarts": 1}},
    "defense": {"none": {}},
    "metrics": ["psnr"],
}


def processor_time(*arguments: str) -> float:
    """Seconds of user and system time of one child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "gradveil", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def share_of_keeping() -> float:
    """Of a run's seconds, those spent in `KEEPING`, whose functions do not call each other."""
    spent: list[float] = []
    for home, name in KEEPING:

        def call(*given, _plain=getattr(home, name), **options):
            start = time.perf_counter()
            try:
                return _plain(*given, **options)
            finally:
                spent.append(time.perf_counter() - start)

        setattr(home, name, call)
    with tempfile.TemporaryDirectory() as folder:
        audit = build(from_tables(AUDIT))
        start = time.perf_counter()
        run_audit(audit, Path(folder) / "run")
        return sum(spent) / (time.perf_counter() - start)


if __name__ == "__main__":
    helps = min(processor_time("--help") for _ in range(5))
    print(json.dumps({"help_processor_seconds": round(helps, 3), "share_of_keeping": round(share_of_keeping(), 4)}))
