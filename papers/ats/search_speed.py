"""How long a search of ATS takes: both scores of 1,500 policies on 100 pictures of CIFAR-100, in full and as a race.

    PYTHONPATH=src python3 papers/ats/search_speed.py --root DATA --weights semi-resnet20-4.safetensors --out OUT \\
        --device cuda --precision tf32 full:unaware race:unaware race:adaptive

Prints one line for each: seconds by stage, the best ten with their mean area, and for a race how far that is from the
full search's. The journal's own times say how it grows with the number of policies.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from gradveil.core.compute import Compute
from gradveil.experiment import journal
from gradveil.experiment.folder import JOURNAL
from gradveil.experiment.record import Record
from gradveil.search.search import search
from gradveil.search.settings import SearchSettings


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    best: dict[str, float] = {}
    for choice in args.searches:
        strategy, _, against = choice.partition(":")
        report = searched(strategy, against, args)
        if strategy == "full":
            best[against] = report["mean_area_of_top"]
        elif against in best:
            report["above_full"] = report["mean_area_of_top"] / best[against] - 1
        print(json.dumps(report), flush=True)
        (args.out / f"search-{strategy}-{against}.json").write_text(json.dumps(report, indent=1) + "\n")


def searched(strategy: str, against: str, args: argparse.Namespace) -> dict[str, Any]:
    asked = SearchSettings(
        model=args.model,
        weights=str(args.weights),
        data="cifar100",
        data_options={"root": args.root},
        candidates=args.candidates,
        images=args.images,
        include=("3-1-7", "43-18-18", "21-13-3", "13-43-18"),
        top=10,
        confirm=0,
        strategy=strategy,  # type: ignore[arg-type]
        against=against,  # type: ignore[arg-type]
    )
    folder, begin = Path(args.scratch) / f"{strategy}-{against}", time.perf_counter()
    outcome = search(asked, folder, compute=Compute(device=args.device, precision=args.precision))
    seconds = time.perf_counter() - begin
    outcome.write(args.out / f"policy-{strategy}-{against}.json")
    top = outcome.policies
    return {
        "strategy": strategy,
        "against": against,
        "candidates": outcome.candidates,
        "distinct": outcome.distinct,
        "passed": outcome.passed,
        "scored": outcome.scored,
        "images": args.images,
        "seconds": seconds,
        "by stage": by_stage(journal.read(folder / JOURNAL)),
        "top": [one.policy for one in top],
        "hybrid": outcome.hybrid,
        "mean_area_of_top": sum(one.area for one in top) / len(top),
        "mean_score_of_top": sum(one.privacy for one in top) / len(top),
    }


def by_stage(records: list[Record]) -> dict[str, Any]:
    """Seconds and records of each score, and the seconds behind us after a quarter, a half and all of the records."""
    report: dict[str, Any] = {}
    for name in dict.fromkeys(record.attack for record in records):
        each = [record.seconds for record in records if record.attack == name]
        marks = [len(each) // 4, len(each) // 2, len(each)]
        report[name] = {"records": marks, "seconds": [round(sum(each[:mark]), 1) for mark in marks]}
    return report


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--weights", required=True, type=Path, help="the half-trained model")
    parser.add_argument("--model", default="resnet20-4")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--scratch", default="runs/search-speed", help="where the searches keep their journals")
    parser.add_argument("--candidates", type=int, default=1500)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("searches", nargs="+", metavar="STRATEGY:AGAINST")
    return parser.parse_args()


if __name__ == "__main__":
    main()
