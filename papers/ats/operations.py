"""ATS, figure 15: the privacy and accuracy score of each of the 50 operations, and of the published policies.

    PYTHONPATH=src:papers/ats python3 papers/ats/operations.py --root DATA --weights semi.safetensors --out OUT.json \\
        --images 100 --device cuda --precision tf32

`operations_compared.py` compares them with what the reproduction published ([Re] ATS, 2022).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from victims import bench_of, model_of

from gradveil.core.interval import mean_interval
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.data import load
from gradveil.search.accuracy import accuracy_rounds, jacobians, spread_scores
from gradveil.search.privacy import PRIVACY_SCORES, areas
from gradveil.search.similarity import Similarity
from gradveil.transforms import Policy
from gradveil.transforms.library import LIBRARIES

POLICIES = ("3-1-7", "43-18-18", "21-13-3")


def main() -> None:
    args = arguments()
    data = load("cifar100", root=args.root, split="test")
    bench = bench_of(args, data, args.weights)
    fresh = model_of(args.model, data, None, args.device)
    texts = [*map(str, range(50)), *POLICIES]
    begin = time.perf_counter()
    found = {text: scored(Policy.parse(text), args, bench, fresh) for text in texts}
    report = {"seconds": time.perf_counter() - begin, "images": args.images, "scores": found, "library": names()}
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({"seconds": report["seconds"], "images": args.images}))


def names() -> list[str]:
    return [f"{entry.operation}{entry.magnitude}" for entry in LIBRARIES["ats-code"].entries]


def scored(policy: Policy, args: argparse.Namespace, bench: Any, fresh: Any) -> dict[str, Any]:
    """Both scores, with the same pictures, starts and signs for every policy."""
    held_out = slice(200, 200 + 5 * args.images, 5)  # the pictures of the authors' code
    pictures, labels = bench.images[held_out], bench.labels[held_out]
    starts = uniform(pictures.shape, Seed(2).at("starts").rng(), pictures)
    draw = policy.draw(args.images, Seed(2).at("draw").rng())
    similarity = Similarity(bench.model, LocalTraining(), bench.compute)
    report: dict[str, Any] = {}
    for kind, score in PRIVACY_SCORES.items():
        for against in ("unaware", "adaptive"):
            each = areas(score, similarity, policy, pictures, labels, starts, draw, against)
            between = mean_interval(each.tolist())
            report[f"{kind}/{against}"] = [each.mean().item(), between.low, between.high] if between else None
    rounds = accuracy_rounds(bench.labels.cpu(), 10, 100, Seed(3), True)
    rates = []
    for which in rounds:
        some = bench.images[which.to(bench.images.device)]
        fed = policy.apply(some, policy.draw(len(some), Seed(2).at("accuracy").rng()))
        rates.append(spread_scores(jacobians(fresh, fed)[None]).item())
    return report | {"accuracy": sum(rates) / len(rates)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--model", default="resnet20-4")
    parser.add_argument("--weights", required=True, type=Path, help="the half-trained model")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
