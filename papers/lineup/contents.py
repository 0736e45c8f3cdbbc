"""What updates contain: the share of pictures that the best guess names among candidates, for every defense.

    PYTHONPATH=src:papers/loda python3 papers/lineup/contents.py --root DATA --out papers/lineup/results/contents.jsonl

CIFAR-10's test pictures (`cifar10_test.npz`: images, labels); victims and candidates are a random sample by seed 0.
Line by line: a network, a batch, local steps, a defense; what tells most and takes least comes first. Lines that OUT
holds already are left out, and so are those of KNOWN; what failed says why, and is tried again with `--retry`.
On a GPU several processes share it (`--workers`), since each waits for Python most of the time.
`contents_table.py` makes the tables of the page.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before torch: a replayed update has the same last bits

import torch
import torch.multiprocessing as processes
from obscured import encode_beforehand, obscured
from resnet20 import ResNet20, trained_on_cifar10
from torch import nn

from gradveil.core.compute import Compute, pick_device
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_agreed
from gradveil.core.types import Batch
from gradveil.data import load
from gradveil.data.draw import draw_rows
from gradveil.defenses import parse_defense
from gradveil.defenses.stack import Stack
from gradveil.lineup import make
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import places_of
from gradveil.lineup.hold import LineUp, Ranks
from gradveil.models import MODELS
from gradveil.models.start import weights_from

FIRST = ("none", "gaussian:scale=0.1", "prune:ratio=0.99", "sign", "dpsgd:clip=1,noise=0.1")  # they tell most
DEFENSES = (
    *FIRST, "gaussian:scale=0.01", "gaussian:scale=1", "laplacian:scale=0.01", "laplacian:scale=0.1", "clip:clip=1",
    "prune:ratio=0.9", "prune:ratio=0.999", "topk:sparsity=0.99", "uniform:bits=3", "qsgd:bits=3",
    "dpsgd:clip=1,noise=0.02", "dpsgd:clip=1,noise=0.05", "dpsgd:clip=1,noise=0.2", "dpsgd:clip=1,noise=0.5",
    "fedcdp:clip=1,noise=0.1", "fedcdp:clip=1,noise=0.5", "mixup", "instahide", "precode", "oasis-hf", "oasis-mr",
    "oasis-mr+sh", "random-policy", "ats:3-1-7", "ats:3-1-7+43-18-18", "soteria", "loda-1", "loda-2",
    "clip:clip=1 + gaussian:scale=0.01", "prune:ratio=0.9 + gaussian:scale=0.01",
)  # fmt: skip
BATCHES, STEPS = (1, 4, 8), (1, 5)
RATE = 0.05  # of local steps, if there are several
SLOW = ("soteria", "precode", "ats", "random-policy", "oasis", "loda")  # each candidate takes several passes
MIXED = ("mixup", "instahide")  # with three others of the same client
COST = {"lenet": 1, "resnet20, untrained": 3, "resnet20, trained": 4, "lenet5": 4}


def untrained_resnet20(classes: int) -> nn.Module:
    with weights_from(0):
        return ResNet20(classes)


def of_catalogue(name: str) -> Callable[[Path, int], nn.Module]:
    return lambda root, classes: MODELS[name](classes=classes, shape=(3, 32, 32), seed=0)


NETWORKS: dict[str, Callable[[Path, int], nn.Module]] = {
    "lenet": of_catalogue("lenet"),
    "lenet5": of_catalogue("lenet5"),
    "resnet20, untrained": lambda root, classes: untrained_resnet20(classes),
    "resnet20, trained": lambda root, classes: trained_on_cifar10(root),
}


def main() -> None:
    args = arguments()
    left = missing(args)
    print(f"{len(left)} lines are missing", flush=True)
    args.stop = time.time() + 60 * args.minutes
    spawn = processes.get_context("spawn")
    place, ready = spawn.Value("i", 0), spawn.Event()
    work = [spawn.Process(target=run_all, args=(left, args, place, ready)) for _ in range(args.workers)]
    for one in work:
        one.start()
    others = [head for head in left if not head["defense"].startswith("loda")]
    if not work:
        run_all(others, args, place, ready)
    if len(others) < len(left) and time.time() < args.stop:
        encode_all(args)
    ready.set()
    if not work:
        run_all(left, args, place, ready)
    for one in work:
        one.join()


def encode_all(args: argparse.Namespace) -> None:
    """Of all that stands in a line-up of few; where that cannot be, each line of LODA's says why."""
    try:
        with computing(args):
            scenario, gallery = scene({"network": "lenet", "batch": 1, "steps": 1}, args.few - 1, args)
            for name in (one for one in args.defenses if one.startswith("loda")):
                encode_beforehand(defense_of(name, args), scenario.private.images.flatten(0, 1), gallery)
    except Exception as error:
        print(f"encodings: {error!r}", flush=True)


def run_all(left: list[dict[str, Any]], args: argparse.Namespace, place: Any, ready: Any) -> None:
    """One line after the other, each by whoever is free; none is begun after the time is up."""
    with computing(args):
        while time.time() < args.stop and (head := claim(left, place)) is not None:
            if head["defense"].startswith("loda"):
                ready.wait()
            found = try_to_measure(head, args)
            with args.out.open("a") as out:
                out.write(json.dumps(head | found) + "\n")
            told = found.get("why") or f"{found['named']} of {found['trials']}, {found['seconds']} s"
            print(*head.values(), told, sep=" | ", flush=True)


def claim(left: list[dict[str, Any]], place: Any) -> dict[str, Any] | None:
    with place.get_lock():
        at = place.value
        if at == len(left):
            return None
        place.value += 1
    return left[at]


@contextmanager
def computing(args: argparse.Namespace) -> Iterator[None]:
    """In full float32, by kernels that give the same bits again, in chunks of a given size."""
    make.CHUNK_BYTES = args.chunk_mb * 1_000_000
    torch.set_num_threads(args.threads)
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    with Compute(device=args.device).active():
        yield


def missing(args: argparse.Namespace) -> list[dict[str, Any]]:
    """What neither OUT nor KNOWN holds, the cheapest of what tells most first."""
    there = [path.read_text() for path in (args.out, *args.known) if path.exists()]
    lines = [json.loads(line) for line in "".join(there).splitlines()]
    known = {cell_of(line) for line in lines if not (args.retry and line.get("failed"))}
    return sorted((head for head in cells(args) if cell_of(head) not in known), key=order_of)


def order_of(head: dict[str, Any]) -> tuple[int, float]:
    kind = head["defense"]
    tier = 0 if kind in FIRST else 3 if kind.startswith("loda") else 2 if kind.startswith(SLOW) else 1
    return tier, COST[head["network"]] * head["steps"] * (head["batch"] if head["steps"] > 1 else 1)


def cells(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for network in args.networks:
        for batch in args.batches:
            for steps in args.steps:
                for defense in args.defenses:
                    if batch > 1 or not defense.startswith(MIXED):
                        yield {"network": network, "batch": batch, "steps": steps, "defense": defense}


def cell_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["network"], line["batch"], line["steps"], line["defense"]


def try_to_measure(head: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Whatever goes wrong is written, and the next line is as if it had not."""
    try:
        with at_most(args.seconds):
            return measure(head, args)
    except Exception as error:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return {"why": f"{type(error).__name__}: {error}"[:500], "failed": True}


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def measure(head: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        found = hold(head, args)
    except NotApplicableError as error:
        return {"why": str(error)}
    trials = [rank for one in found for rank in one.ranks]
    near = {name: sum(rank == 1 for one in found for rank in one.near[name]) for name in found[0].near}
    return {
        "kind": found[0].kind, "candidates": found[0].candidates, "trials": len(trials),
        "named": sum(rank == 1 for rank in trials), "near": near, "fits": sum(one.fits for one in found),
        "of": len(found), "another": sum(one.other == 1 for one in found), "victims": args.victims,
        "seconds": round(time.perf_counter() - start, 2),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "device": args.device,
    }  # fmt: skip


def hold(head: dict[str, Any], args: argparse.Namespace) -> list[Ranks]:
    shared = head["steps"] == 1 and head["network"].startswith("lenet") and not head["defense"].startswith(SLOW)
    count = args.candidates if shared else min(args.candidates, args.few)
    scenario, gallery = scene(head, count - 1, args)
    defense = defense_of(head["defense"], args)
    lineup = LineUp(scenario=scenario, defense=defense, gallery=gallery, seed=Seed(0), standins=args.standins)
    seen = observe_agreed(scenario, defense, Seed(0))[0]
    places = [(client, place) for client in range(len(scenario.names)) for place in places_of(scenario, client)]
    updates = [[{name: u[client] for name, u in seen.update.items()}] for client, _ in places]
    return lineup.hold([place for _, place in places], updates)


def defense_of(name: str, args: argparse.Namespace) -> Defense:
    """By its name; parts of a stack stand around a `+` with spaces. LODA keeps the features of the trained ResNet20."""
    if name.startswith("loda"):
        return obscured(name, args.root, args.encode_steps)
    parts = tuple(parse_defense(one) for one in name.split(" + "))
    return parts[0] if len(parts) == 1 else Stack(parts)


def scene(head: dict[str, Any], others: int, args: argparse.Namespace) -> tuple[Scenario, Gallery]:
    dataset = load(str(args.root / args.data))
    rows = draw_rows(len(dataset.images), Seed(0), "seed")
    victims, gallery = rows[: args.victims], rows[args.victims : args.victims + others]
    model = NETWORKS[head["network"]](args.root, dataset.targets.shape[1]).eval().to(args.device)
    size = head["batch"]
    held = (x[victims].to(args.device) for x in (dataset.images, dataset.targets))
    private = Batch(*(x.unflatten(0, (-1, size)) for x in held))
    names = tuple(f"c{client}" for client in range(len(private.images)))
    training = LocalTraining() if head["steps"] == 1 else LocalTraining(steps=head["steps"], rate=RATE)
    scenario = Scenario(name="contents", model=model, private=private, names=names,
                        training=training, trained=head["network"].endswith(", trained"))  # fmt: skip
    others = Batch(*(x[gallery].to(args.device) for x in (dataset.images, dataset.targets)))
    return scenario, Gallery(images=others.images, labels=others.labels)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of cifar10_test.npz and resnet20_cifar10.npz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="lines that are there already")
    parser.add_argument("--retry", action="store_true", help="try again what failed")
    parser.add_argument("--data", default="cifar10_test.npz", help="in that folder: images and labels")
    parser.add_argument("--victims", type=int, default=8)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--defenses", nargs="+", default=list(DEFENSES))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--steps", nargs="+", type=int, default=list(STEPS))
    parser.add_argument("--candidates", type=int, default=1001, help="the original included")
    parser.add_argument("--few", type=int, default=101, help="of networks and trainings that take long")
    parser.add_argument("--standins", type=int, default=9, help="pictures put into each place beside its own")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=0, help="processes that share the device; 0: this one")
    parser.add_argument("--minutes", type=float, default=1e6, help="no line is begun later")
    parser.add_argument("--seconds", type=int, default=3600, help="a line that takes longer is given up")
    parser.add_argument("--chunk-mb", type=int, default=100, help="updates of candidates that are made together")
    parser.add_argument("--encode-steps", type=int, default=500, help="of LODA")
    args = parser.parse_args()
    args.device = pick_device(args.device)
    return args


if __name__ == "__main__":
    main()
