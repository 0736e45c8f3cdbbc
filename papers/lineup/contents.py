"""What updates contain: the share of pictures that the best guess names among candidates, for every defense.

    PYTHONPATH=src:papers/loda python3 papers/lineup/contents.py --root DATA --out papers/lineup/results/contents.jsonl

CIFAR-10's test pictures (`cifar10_test.npz`: images, labels); victims and candidates are a random sample by seed 0.
Line by line: a network, a batch, local steps, a defense. Lines that OUT holds already are left out.
`contents_table.py` makes the tables of the page.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from resnet20 import ResNet20, trained_on_cifar10
from torch import nn

from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_agreed
from gradveil.core.types import Batch
from gradveil.data import load
from gradveil.data.draw import draw_rows
from gradveil.defenses import parse_defense
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import places_of
from gradveil.lineup.hold import LineUp, Ranks
from gradveil.models import MODELS
from gradveil.models.start import weights_from

DEFENSES = (
    "none", "gaussian:scale=0.01", "gaussian:scale=0.1", "gaussian:scale=1", "laplacian:scale=0.01",
    "laplacian:scale=0.1", "prune:ratio=0.9", "prune:ratio=0.99", "prune:ratio=0.999", "topk:sparsity=0.99", "sign",
    "uniform:bits=3", "qsgd:bits=3", "soteria", "precode", "ats:3-1-7", "ats:3-1-7+43-18-18", "oasis-mr",
    "mixup", "instahide", "dpsgd:clip=1,noise=0.02", "dpsgd:clip=1,noise=0.05", "dpsgd:clip=1,noise=0.1",
    "dpsgd:clip=1,noise=0.2", "dpsgd:clip=1,noise=0.5", "fedcdp:clip=1,noise=0.5",
)  # fmt: skip
BATCHES, STEPS = (1, 4, 8), (1, 5)
RATE = 0.05  # of local steps, if there are several
SLOW = ("soteria", "precode", "ats", "oasis")  # each candidate takes several passes


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
    torch.set_num_threads(args.threads)
    known = {cell_of(json.loads(line)) for line in args.out.read_text().splitlines()} if args.out.exists() else set()
    with args.out.open("a") as out:
        for head in cells(args):
            if cell_of(head) not in known:
                out.write(json.dumps(head | measure(head, args)) + "\n")
                out.flush()


def cells(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for network in args.networks:
        for batch in args.batches:
            for steps in args.steps:
                for defense in args.defenses:
                    if batch > 1 or not defense.startswith(("mixup", "instahide")):
                        yield {"network": network, "batch": batch, "steps": steps, "defense": defense}


def cell_of(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["network"], line["batch"], line["steps"], line["defense"]


def measure(head: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    start = time.process_time()
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
        "seconds": round(time.process_time() - start, 2),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }  # fmt: skip


def hold(head: dict[str, Any], args: argparse.Namespace) -> list[Ranks]:
    shared = head["steps"] == 1 and head["network"].startswith("lenet") and not head["defense"].startswith(SLOW)
    count = args.candidates if shared else min(args.candidates, args.few)
    scenario, gallery = scene(head, count - 1, args)
    defense = parse_defense(head["defense"])
    lineup = LineUp(scenario=scenario, defense=defense, gallery=gallery, seed=Seed(0), standins=args.standins)
    seen = observe_agreed(scenario, defense, Seed(0))[0]
    places = [(client, place) for client in range(len(scenario.names)) for place in places_of(scenario, client)]
    updates = [[{name: u[client] for name, u in seen.update.items()}] for client, _ in places]
    return lineup.hold([place for _, place in places], updates)


def scene(head: dict[str, Any], others: int, args: argparse.Namespace) -> tuple[Scenario, Gallery]:
    dataset = load(str(args.root / args.data))
    rows = draw_rows(len(dataset.images), Seed(0), "seed")
    victims, gallery = rows[: args.victims], rows[args.victims : args.victims + others]
    model = NETWORKS[head["network"]](args.root, dataset.targets.shape[1]).eval()
    size = head["batch"]
    private = Batch(*(x[victims].unflatten(0, (-1, size)) for x in (dataset.images, dataset.targets)))
    names = tuple(f"c{client}" for client in range(len(private.images)))
    training = LocalTraining() if head["steps"] == 1 else LocalTraining(steps=head["steps"], rate=RATE)
    scenario = Scenario(name="contents", model=model, private=private, names=names,
                        training=training, trained=head["network"].endswith(", trained"))  # fmt: skip
    return scenario, Gallery(images=dataset.images[gallery], labels=dataset.targets[gallery])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of cifar10_test.npz and resnet20_cifar10.npz")
    parser.add_argument("--out", type=Path, required=True)
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
    return parser.parse_args()


if __name__ == "__main__":
    main()
