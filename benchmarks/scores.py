"""The privacy score of policies: gradients of single pictures a second, against one `torch.autograd.grad` at a time.

    OMP_NUM_THREADS=1 PYTHONPATH=src:. python3 benchmarks/scores.py --model resnet20-4 --images 2 --points 21
    PYTHONPATH=src:. python3 benchmarks/scores.py --device cuda --precision tf32 --images 100 --policies 15

Weights and pictures are random: speed does not ask what they show. A policy costs images x points gradients, the last
point being the target. Times are of the CPU on one thread, so that other load on the machine counts little, or of the
clock on a GPU. `apart` is the largest difference of a few similarities from the one-by-one way in float64. The accuracy
score is timed beside it: one round of 63 pictures for each policy.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.core.client import in_client_mode, loss_of
from gradveil.core.compute import Compute
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.models import MODELS
from gradveil.search.accuracy import jacobians, spread_scores
from gradveil.search.similarity import Similarity

CLASSES, SHAPE, ROUND = 100, (3, 32, 32), 63
CONSTANTS = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
SEARCH = 1500 * 100 * 21  # gradients of the paper's search: policies, pictures, points
Given = tuple[Tensor, Tensor, Tensor]


def main() -> None:
    args = arguments()
    if args.device == "cpu":
        torch.set_num_threads(1)
    found = measured(args)
    text = json.dumps(found, indent=1)
    print(text, flush=True)
    if args.out:
        Path(args.out).write_text(text + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32", "float64"])
    parser.add_argument("--backend", default="auto", choices=["auto", "sweep", "vmap", "loop"])
    parser.add_argument("--model", default="resnet20-4", choices=sorted(MODELS))
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--points", type=int, default=21)
    parser.add_argument("--policies", type=int, default=1)
    parser.add_argument("--chunk", type=int, help="pictures at once; by the memory unless given")
    parser.add_argument("--out", help="a file for the JSON")
    return parser.parse_args()


def measured(args: argparse.Namespace) -> dict[str, Any]:
    compute = Compute(device=args.device, precision=args.precision, backend=args.backend, chunk=args.chunk)
    model = MODELS[args.model](classes=CLASSES, shape=SHAPE, **CONSTANTS)
    given = pictures(args.images, args.points, compute)
    similarity = Similarity(model, LocalTraining(), compute)
    similarity(*given)  # finds its back end, measures the memory
    ours = seconds(lambda: similarity(*given), args.policies, args.device)
    few = first(given, min(2, args.images))
    theirs = seconds(lambda: one_by_one(model, compute, few), 1, args.device) / (len(few[1]) * args.points)
    rate = args.images * args.points / ours
    return {
        **{name: getattr(args, name) for name in ("model", "images", "points", "policies", "precision", "device")},
        "backend": similarity.backend,
        "gradients_per_second": rate,
        "one_by_one_per_second": 1 / theirs,
        "ratio": theirs * rate,
        "minutes_of_a_search": SEARCH / rate / 60,
        "apart": apart(model, similarity, few),
        "accuracy_seconds_per_policy": accuracy_seconds(model, compute, args.policies),
        **machine(args.device),
    }


def pictures(images: int, points: int, compute: Compute) -> Given:
    """On the way from one random picture to another, without its end."""
    rng = Seed(0).rng()
    start, target = (torch.rand(images, *SHAPE, generator=rng).to(compute.device, compute.dtype) for _ in range(2))
    i = torch.linspace(0, 1, points)[:-1].to(target).view(-1, 1, 1, 1)
    labels = torch.eye(CLASSES)[torch.arange(images) % CLASSES].to(target)
    return (1 - i) * start[:, None] + i * target[:, None], target, labels


def first(given: Given, images: int) -> Given:
    points, target, labels = given
    return points[:images], target[:images], labels[:images]


def seconds(work: Callable[[], Any], times: int, device: str) -> float:
    """Of one run."""
    gpu = device.startswith("cuda")
    clock = time.perf_counter if gpu else time.process_time
    wait = torch.cuda.synchronize if gpu else (lambda: None)
    wait()
    begin = clock()
    for _ in range(times):
        work()
    wait()
    return (clock() - begin) / times


def one_by_one(model: nn.Module, compute: Compute, given: Given) -> Tensor:
    """The flat cosine as others take it: one picture, one backward."""
    model = in_client_mode(model, LocalTraining()).to(compute.device, compute.dtype)
    weights = list(model.parameters())

    def gradient(picture: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss_of(model(picture[None]), label[None], "cross-entropy"), weights)

    rows = []
    for points, target, label in zip(*given, strict=True):
        goal = gradient(target, label)
        rows.append(torch.stack([cosine(gradient(point, label), goal) for point in points]))
    return torch.stack(rows)


def cosine(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> Tensor:
    cross = torch.stack([(a * b).sum() for a, b in zip(one, other, strict=True)]).sum()
    lengths = [torch.stack([a.square().sum() for a in each]).sum().sqrt() for each in (one, other)]
    return cross / (lengths[0] * lengths[1])


def apart(model: nn.Module, similarity: Similarity, given: Given) -> float:
    precise = Compute(device=similarity.compute.device, precision="float64")
    few = first((given[0][:, ::7], *given[1:]), 1)
    exact = one_by_one(model, precise, (few[0].double(), few[1].double(), few[2].double()))
    return float((similarity(*few).flat() - exact).abs().max())


def accuracy_seconds(model: nn.Module, compute: Compute, policies: int) -> float:
    model = model.to(compute.device, compute.dtype)
    fed = torch.rand(policies, ROUND, *SHAPE, generator=Seed(1).rng()).to(compute.device, compute.dtype)

    def score(fed: torch.Tensor) -> torch.Tensor:
        return spread_scores(jacobians(model, fed.flatten(0, 1)).unflatten(0, fed.shape[:2]))

    with compute.active():
        score(fed[:1])
        return seconds(lambda: score(fed), 1, compute.device) / policies


def machine(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or platform.machine()
    return {"machine": name, "torch": torch.__version__, "python": platform.python_version()}


if __name__ == "__main__":
    main()
