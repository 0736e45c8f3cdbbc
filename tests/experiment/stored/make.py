"""Runs of this version for later versions to read, small and without pictures.

`python tests/experiment/stored/make.py` makes them. They go
into a folder named after the version. What an older version wrote stays as it is.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

from gradveil.cli import main
from gradveil.core.hashes import own_version

HERE = Path(__file__).resolve().parent
CPU = "--device cpu --quiet"
DIGITS = "--data digits --model mlp"
PHOTOS = "--data photos --data-option size=16 --data-option count=40"
RUNS = {
    "audit": f"audit {DIGITS} --images 3 --attack linear --defense none --defense gaussian:scale=10 {CPU}",
    "search-attack": f"audit {DIGITS} --images 2 --attack invertgrad:steps=20,restarts=1"
    f" --convergence --metric psnr --metric ssim --metric retrieval --defense prune:ratio=0.5 {CPU}",
    "active": f"audit {PHOTOS} --images 1 --batch-size 4 --attacker malicious --attack rtf:neurons=64"
    f" --defense none --defense oasis --budget quick {CPU}",
    "search": "search --data-option count=64 --data-option size=16 --candidates 6 --top 2 --images 4 --rounds 1"
    f" --semi-epochs 1 --threshold 100% --confirm 0 --workers 0 {CPU} --out policy.json",
    "training": "train --data-option limit=64 --rounds 3 --clients 4 --batch-size 8 --device cpu --json",
}
FOLDER = {"search": "--folder"}
KEPT = ("journal.jsonl", "config.toml", "provenance.json", "verdict.json")


def make(name: str, target: Path) -> None:
    command = [*shlex.split(RUNS[name]), FOLDER.get(name, "--out"), "out"]
    sys.argv = ["gradveil", *command]  # what provenance.json repeats
    try:
        main(command)
    except SystemExit as left:
        if left.code:
            raise
    target.mkdir(parents=True)
    for file in KEPT:
        if Path("out", file).exists():
            shutil.copyfile(Path("out", file), target / file)
    shutil.rmtree("out")


if __name__ == "__main__":
    from contextlib import chdir

    folder = HERE / own_version()
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as desk, chdir(desk), patch.object(platform, "platform", lambda: "Linux"):
        for name in RUNS:
            make(name, folder / name)
