"""Figures 3 to 6 and 13 of OASIS by one command: the sweeps, the box plots, and the drawings of both.

    PYTHONPATH=src OMP_NUM_THREADS=1 python3 papers/oasis/all.py --root DATA --out OUT

DATA holds CIFAR-100. Writes `attacks.jsonl`, `boxes.jsonl` and `fig*.svg` into OUT, in about seven minutes of one core.
What OUT holds already is left out: the same command goes on where it was ended, part by part. `--small` takes one batch
of each size and two numbers of neurons, to see that everything runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SWEEP = ["--attack", "rtf", "cah", "linear-model"]
SERVERS = ["--servers", "mean", "cah", "cah-copies", "single-layer"]
TRANSFORMS = ["--defenses", "none", "major", "minor", "shear", "hflip", "vflip", "major+shear"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, commands in steps(args.small).items():
        if not (args.out / name).exists():
            made(args.out / name, [[*command, "--root", args.root] for command in commands])
    called("figures.py", [str(args.out)])


def steps(small: bool) -> dict[str, list[list[str]]]:
    """File by file, the commands whose lines it holds."""
    groups = ["--groups", "1", "--neurons", "100", "500"] if small else ["--groups", "6"]
    batches = ["--batches", "1", "1"] if small else ["--batches", "16", "4"]
    return {
        "attacks.jsonl": [["attacks.py", "--setting", setting, *SWEEP, *groups] for setting in ("paper", "ours")],
        "boxes.jsonl": [["adaptive.py", *SERVERS, *TRANSFORMS, *batches]],
    }


def made(file: Path, commands: list[list[str]]) -> None:
    """Whole or not at all."""
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    for script, *options in commands:
        called(script, [*options, "--out", str(part)])
    part.rename(file)


def called(script: str, options: list[str]) -> None:
    ended = subprocess.run([sys.executable, str(HERE / script), *options], check=False)
    if ended.returncode:
        sys.exit(f"error: {script} ended with {ended.returncode}, see above")


if __name__ == "__main__":
    main()
