"""ATS, figure 5: does the privacy score of a policy tell what an attack recovers under it?

    PYTHONPATH=src:papers/ats python3 papers/ats/correlation.py --root DATA --semi semi.safetensors \\
        --weights plain.safetensors --out OUT.json --images 50 --device cuda --precision tf32

Random policies of up to three operations; each is scored on the half-trained model (flat and per-tensor similarity) and
on the attacked one, and its pictures are attacked by the preset of ATS. PSNR is measured against the picture as fed, as
in the paper, and against the private one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from victims import Bench, bench_of, joined, model_of

from gradveil.attacks import ATTACKS
from gradveil.data import load
from gradveil.defenses import DEFENSES
from gradveil.metrics import METRICS
from gradveil.policies import Policy
from gradveil.policies.privacy import PRIVACY_SCORES, areas
from gradveil.policies.similarity import Similarity
from gradveil.scenario import LocalTraining
from gradveil.seeds import Seed, uniform

TOGETHER = 2000  # clients attacked in one go: their updates have to fit the memory


def main() -> None:
    args = arguments()
    data = load("cifar100", root=args.root, split="test")
    bench = bench_of(args, data, args.weights)
    policies = drawn(args.policies)
    scored = {"half-trained": model_of(args.model, data, args.semi, args.device), "attacked": bench.model}
    begin = time.perf_counter()
    scores = {
        f"{name}/{kind}": scores_of(policies, model, kind, bench, args.images)
        for name, model in scored.items()
        for kind in ("ats-paper", "ats-code")
    }
    seconds = {"scores": time.perf_counter() - begin}
    begin = time.perf_counter()
    psnr = attacked(policies, bench, args)
    seconds["attacks"] = time.perf_counter() - begin
    told = {"policies": list(map(str, policies)), "scores": scores, "psnr": psnr, "seconds": seconds}
    told |= {"model": args.model, "weights": args.weights.stem, "images": args.images, "steps": args.steps}
    told["correlation"] = {
        f"{score} and {kind}": correlated(values[: len(psnr[kind])], psnr[kind])
        for score, values in scores.items()
        for kind in psnr
    }
    args.out.write_text(json.dumps(told) + "\n")
    print(json.dumps({"seconds": seconds, **told["correlation"]}, indent=1))


def drawn(count: int) -> list[Policy]:
    """Different policies of one to three operations."""
    rng, found = np.random.default_rng(0), {}
    while len(found) < count:
        text = "-".join(map(str, rng.integers(0, 50, rng.integers(1, 4))))
        policy = Policy.parse(text)
        found.setdefault(policy.canonical(), policy)
    return list(found.values())


def scores_of(policies: list[Policy], model: torch.nn.Module, kind: str, bench: Bench, images: int) -> list[float]:
    """The mean area under the similarity of pictures that are not attacked."""
    score = PRIVACY_SCORES[kind]
    similarity = Similarity(model, LocalTraining(), bench.compute)
    held_out = slice(200, 200 + 5 * images, 5)
    pictures, labels = bench.images[held_out], bench.labels[held_out]
    starts = uniform(pictures.shape, Seed(2).at("starts").rng(), pictures)
    found = []
    for policy in policies:
        draw = policy.draw(images, Seed(2).at("draw").rng())
        found.append(areas(score, similarity, policy, pictures, labels, starts, draw, "unaware").mean().item())
    return found


def attacked(policies: list[Policy], bench: Bench, args: argparse.Namespace) -> dict[str, list[float]]:
    """Mean PSNR of the attack under each policy; of the first ones only where the time runs out."""
    attack, images, begin = ATTACKS["invertgrad-ats"](steps=args.steps), args.images, time.perf_counter()
    found: dict[str, list[float]] = {"fed": [], "private": []}
    size = max(1, TOGETHER // images)
    for first in range(0, len(policies), size):
        if first and (time.perf_counter() - begin) * (1 + size / first) > args.seconds:
            break
        some = policies[first : first + size]
        rounds = [bench.observed(DEFENSES["ats"](policy=str(policy)), images) for policy in some]
        seen = joined([observation for observation, _ in rounds], [str(policy) for policy in some])
        got = attack.reconstruct(seen, Seed(1), bench.compute).images.float().cpu().clamp(0, 1)
        for pictures, (_, truth) in zip(got.split(images), rounds, strict=True):
            for kind, true in (("fed", truth.fed), ("private", truth.private)):
                found[kind].append(mean_psnr(pictures, true.images.float().cpu()))
        print(f"{first + len(some)} policies, {time.perf_counter() - begin:.0f} s", flush=True)
    return found


def mean_psnr(got: Tensor, true: Tensor) -> float:
    return METRICS["psnr"]().score(got, true).mean().item()


def correlated(one: list[float], other: list[float]) -> dict[str, Any]:
    """Pearson's coefficient with Fisher's interval, Spearman's beside it."""
    pearson = stats.pearsonr(one, other)
    between = pearson.confidence_interval(0.95)
    spearman = stats.spearmanr(one, other)
    told = {"pearson": pearson.statistic, "low": between.low, "high": between.high, "spearman": spearman.statistic}
    return {key: round(float(value), 3) for key, value in told.items()}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--model", default="convnet32")
    parser.add_argument("--semi", required=True, type=Path, help="half-trained weights: what the search scores with")
    parser.add_argument("--weights", required=True, type=Path, help="the attacked model")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for the attacks, at most")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
