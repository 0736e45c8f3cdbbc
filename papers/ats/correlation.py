"""ATS, figure 5: does the privacy score of a policy tell what an attack recovers under it?

    PYTHONPATH=src:papers/ats python3 papers/ats/correlation.py --root DATA --semi semi.safetensors \\
        --weights plain.safetensors stages.safetensors --out OUT.json --images 50 --device cuda --precision tf32

Random policies of up to three operations; each is scored on the half-trained model (flat and per-tensor similarity),
its pictures are attacked by the preset of ATS, and last it is scored on the attacked models too. PSNR is measured
against the picture as fed, as in the paper, and against the private one; `blank` is that of a gray picture against the
one as fed, `gain` what the attack is better; `identified` is the share of pictures that are nearer to the picture as
fed than 1,000 others under the same policy. The file is written again after every step, the attacks in groups of
policies and all models in turn: `correlation_figure.py` draws it whenever the run was ended, and the same command goes
on from there, with more models if they are given.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from policy_rounds import drawn, rounds_of
from torch import Tensor
from victims import GALLERY, Bench, bench_of, model_of, pictures_of

from gradveil.attacks import ATTACKS
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.metrics import METRICS
from gradveil.search.correlation import pearson, spearman
from gradveil.search.privacy import PRIVACY_SCORES, gradsim
from gradveil.search.similarity import Products, Similarity
from gradveil.transforms import Policy

PAPER, CODE = PRIVACY_SCORES["ats-paper"], PRIVACY_SCORES["ats-code"]
KINDS = ("fed", "private", "blank", "gain", "identified")


def main() -> None:
    args = arguments()
    data = pictures_of(args, "test")
    benches = {path.stem: bench_of(args, data, path) for path in args.weights}
    policies = [Policy.parse("none"), *drawn(args.policies)]
    report = begun(policies, benches, args)
    half_trained = model_of(args.model, data, args.semi, args.device)
    score("half-trained", policies, replace(next(iter(benches.values())), model=half_trained), report, args)
    attack_all(policies, benches, report, args)
    for name, bench in benches.items():  # last, since the figure does without
        score(name, policies, bench, report, args)
    report["correlation"] = correlations(report)
    write(report, args.out)
    print(json.dumps({"seconds": report["seconds"], "correlation": report["correlation"]}, indent=1))


def begun(policies: list[Policy], benches: Mapping[str, Bench], args: argparse.Namespace) -> dict[str, Any]:
    """What the file has already, if it was made with the same options; it may lack models or policies."""
    same: dict[str, Any] = {"model": args.model, "images": args.images, "scored": args.scored, "steps": args.steps}
    same |= {"tv": args.tv, "policies": list(map(str, policies))}
    report: dict[str, Any] = same | {"note": "the first policy is the control, in no coefficient"}
    report |= {"scores": {}, "psnr": {}, "seconds": {}}
    if args.out.exists():
        report = json.loads(args.out.read_text())
        if any(report[key] != value for key, value in same.items()):
            raise ConfigError(f"{args.out}: made with other options, take another --out")
    for name in benches:
        report["psnr"].setdefault(name, {kind: [] for kind in KINDS})
    return report


def write(report: dict[str, Any], out: Path) -> None:
    out.write_text(json.dumps(report) + "\n")


def score(name: str, policies: list[Policy], bench: Bench, report: dict[str, Any], args: argparse.Namespace) -> None:
    if name in report["scores"]:
        return
    begin = time.perf_counter()
    report["scores"][name] = scores_of(policies, bench, args.scored)
    report["seconds"][f"scores, {name}"] = round(time.perf_counter() - begin, 1)
    write(report, args.out)
    print(f"scores, {name}: {report['seconds'][f'scores, {name}']} s", flush=True)


def scores_of(policies: list[Policy], bench: Bench, images: int) -> dict[str, list[float]]:
    """The mean area under the similarity of pictures that are not attacked, by both presets."""
    similarity = Similarity(bench.model, LocalTraining(), bench.compute)
    held_out = slice(200, 200 + 5 * images, 5)
    pictures, labels = bench.images[held_out], bench.labels[held_out]
    starts = uniform(pictures.shape, Seed(2).at("starts").rng(), pictures)
    found: dict[str, list[float]] = {"flat": [], "per-tensor": []}
    for policy in policies:
        draw = policy.draw(images, Seed(2).at("draw").rng())
        each = gradsim(similarity, policy, pictures, labels, starts, draw, at=CODE.coefficients)
        every_second = Products(each.cross[:, ::2], each.own[:, ::2], each.target)  # 10 points of 20 are the paper's
        found["flat"].append(round(PAPER.area(PAPER.curve(every_second)).mean().item(), 5))
        found["per-tensor"].append(round(CODE.area(CODE.curve(each)).mean().item(), 5))
    return found


def attack_all(
    policies: list[Policy], benches: dict[str, Bench], report: dict[str, Any], args: argparse.Namespace
) -> None:
    """Group by group, without those that are in the file; of the first policies only where the time runs out."""
    begin, size, last = time.perf_counter(), max(1, args.together // args.images), 0.0
    before = report["seconds"].get("attacks", 0.0)
    for first in range(0, len(policies), size):
        here, end = time.perf_counter(), min(first + size, len(policies))
        if first and here - begin + last > args.seconds:
            break
        for name, bench in benches.items():
            done = len(report["psnr"][name]["fed"])
            if done < end:
                extend(report["psnr"][name], attacked(policies[max(first, done) : end], bench, args))
                report["seconds"]["attacks"] = round(before + time.perf_counter() - begin, 1)
                write(report, args.out)
                print(f"{name}: {end} policies, {report['seconds']['attacks']} s", flush=True)
        last = time.perf_counter() - here


def extend(found: dict[str, list[float]], more: Mapping[str, list[float]]) -> None:
    for kind, values in more.items():
        found[kind] += values


def attacked(policies: list[Policy], bench: Bench, args: argparse.Namespace) -> dict[str, list[float]]:
    """Mean PSNR of the attack under each policy, and the share of pictures that were identified."""
    seen, fed = rounds_of(bench, policies, args.images)
    got = ATTACKS["invertgrad-ats"](steps=args.steps, tv=args.tv).reconstruct(seen, Seed(1), bench.compute)
    pictures, fed = got.images[:, 0].float().cpu().clamp(0, 1), fed.float().cpu()
    private = bench.images[: args.images].float().cpu().repeat(len(policies), 1, 1, 1)
    sides = {"fed": (pictures, fed), "private": (pictures, private), "blank": (torch.full_like(fed, 0.5), fed)}
    found = {kind: mean_psnr(*pair, args.images) for kind, pair in sides.items()}
    gains = [round(ours - blank, 4) for ours, blank in zip(found["fed"], found["blank"], strict=True)]
    pairs = zip(policies, pictures.split(args.images), fed.split(args.images), strict=True)
    return found | {"gain": gains, "identified": [identified(policy, bench, *pair) for policy, *pair in pairs]}


def identified(policy: Policy, bench: Bench, pictures: Tensor, fed: Tensor) -> float:
    others = bench.images[GALLERY].float().cpu()
    gallery = policy.apply(others, policy.draw(len(others), Seed(5).rng()))
    return METRICS["retrieval"](gallery=gallery).score(pictures, fed).mean().item()


def mean_psnr(got: Tensor, true: Tensor, images: int) -> list[float]:
    return [round(x, 4) for x in METRICS["psnr"]().score(got, true).view(-1, images).mean(1).tolist()]


def correlations(report: dict[str, Any]) -> dict[str, Any]:
    """Both coefficients with their intervals, for every model attacked, model scored with, similarity and PSNR."""
    found = {}
    for attacked_model, psnr in report["psnr"].items():
        for scorer in ("half-trained", attacked_model):
            for similarity, scores in report["scores"].get(scorer, {}).items():  # a run may have been ended before
                for kind, seen in psnr.items():
                    name = f"{attacked_model} by {scorer}, {similarity}, {kind}"
                    found[name] = coefficients(scores[1 : len(seen)], seen[1:])
    return found


def coefficients(scores: list[float], seen: list[float]) -> dict[str, Any]:
    both = {"pearson": pearson(scores, seen), "spearman": spearman(scores, seen)}
    rounded = {name: {key: round(value, 3) for key, value in asdict(one).items()} for name, one in both.items() if one}
    return {"policies": len(seen), **rounded}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with the data")
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--classes", type=int, help="the first ones of CIFAR-100 only, as in models.py")
    parser.add_argument("--model", default="convnet8")
    parser.add_argument("--semi", required=True, type=Path, help="half-trained weights: what the search scores with")
    parser.add_argument("--weights", required=True, nargs="+", type=Path, help="the attacked models")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--scored", type=int, default=50, help="pictures of the score, none of them attacked")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--together", type=int, default=250, help="clients attacked before the file is written again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for the attacks, at most")
    parser.add_argument("--tv", type=float, default=1e-4, help="weight of the total variation, ATS has 1e-4")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
