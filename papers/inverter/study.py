"""What a learned inverter draws of updates that searches cannot read, and what a search from it gains.

    PYTHONPATH=src:papers/loda python3 papers/inverter/study.py --root DATA --out OUT --device cuda --seconds 540

DATA holds cifar10_train_0.zip, cifar10_test.zip, cifar10_labels.npz and resnet20_cifar10.npz. Victims and the 1,000
others of the gallery are a random sample of the test pictures (seed 0); public are the train pictures, which the
trained network has seen, and the test pictures that are neither. Nothing that looks like a victim is learned from.

Part 1: the trained ResNet20 without a defense, inverters of several sizes. Part 2: LeNet and ResNet20 under five
defenses, the inverter, a search, and a search from the inverter, each in the same time, training included. Lines go to
OUT/lines.jsonl; cells that are there already are left out. OUT/sizes.png and OUT/defenses.png show pictures,
OUT/inverter.safetensors is a trained network small enough to keep. A cell that fails says why and the next one begins.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import compare, describe_machine, interval, psnr, ranks_of
from public import CifarSplit, split_cifar
from sheet import Sheet
from small_inverters import Bank, Learned, Means, learn, simulate
from small_searches import run_searches
from torch import Tensor, nn

from gradveil.core.compute import Compute
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_agreed
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.generators.inverter import draw_pictures
from gradveil.generators.learn_inverter import Lesson
from gradveil.models import MODELS

SIZES: dict[str, dict[str, Any]] = {  # part 1: the pool, copies of each picture, the network, and its share of the time
    "train": {"pool": "train", "copies": 2, "hidden": 1536, "sketch": 256, "share": 1},
    "test": {"pool": "test", "copies": 2, "hidden": 1536, "sketch": 256, "share": 1},
    "both": {"pool": "both", "copies": 2, "hidden": 1536, "sketch": 256, "share": 1},
    "more-copies": {"pool": "both", "copies": 64, "hidden": 1536, "sketch": 256, "share": 2},
    "larger-sketch": {"pool": "both", "copies": 64, "hidden": 1536, "sketch": 1024, "share": 2},
    "larger": {"pool": "both", "copies": 64, "hidden": 3072, "sketch": 1024, "share": 3},
    "convolutions": {
        "pool": "both",
        "copies": 64,
        "hidden": 1536,
        "sketch": 1024,
        "decoder": "convolutions",
        "share": 3,
    },
    "test-more-copies": {"pool": "test", "copies": 64, "hidden": 1536, "sketch": 1024, "share": 2},
    "kept": {"pool": "both", "copies": 64, "hidden": 448, "sketch": 192, "share": 1},  # its file is below 16 MiB
}
SKETCHES = (192, 256, 1024)
MOST_COPIES = 64
DEFENSES = ("none", "gaussian:relative=1", "prune:ratio=0.99", "sign", "dpsgd:clip=1,noise=0.001")
NETWORKS = {"resnet20": 1.2, "lenet": 0.8}  # shares of the time
WIDTHS = {"resnet20": 256, "lenet": 1024}  # of the sketch in part 2
PHASES, OVERHEAD = 3, 6.0  # of a cell of part 2: three times as long as each, and seconds beside
PART_1, BANK = 0.42, 0.35  # of the time, and of that of part 1 to simulate in


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    with Compute(device=args.device).active():
        study = Study(args)
        study.write("machine", describe_machine(args.device))
        study.part_1()
        study.part_2()


class Study:
    """The pictures, the time, and the lines that are written."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.start = args, time.monotonic()
        self.lines = args.out / "lines.jsonl"
        self.means = Means(device=args.device, together=args.together, batch_size=args.batch)
        known = self.lines.read_text().splitlines() if self.lines.exists() else []
        self.known = {json.loads(line)["cell"] for line in known if "failed" not in json.loads(line)}
        self.split: CifarSplit = split_cifar(args.root, args.victims, args.gallery, args.pool, args.device)
        self.sheets = {name: Sheet(args.out / f"{name}.png") for name in ("sizes", "defenses")}
        for sheet in self.sheets.values():
            sheet.add("original", self.split.victims.images)

    @property
    def left(self) -> float:
        return self.args.seconds - self.spent

    @property
    def spent(self) -> float:
        return time.monotonic() - self.start

    def write(self, cell: str, found: dict[str, Any]) -> None:
        line = json.dumps({"cell": cell, **found, "at": round(time.monotonic() - self.start, 1)})
        with self.lines.open("a") as out:
            out.write(line + "\n")
        print(line, flush=True)

    def try_cell(self, cell: str, run: Callable[[], dict[str, Any]]) -> None:
        """One line, whatever happens."""
        if cell in self.known:
            return
        if self.left < self.args.least:
            self.write(cell, {"failed": "no time left"})
            return
        try:
            self.write(cell, run())
        except Exception as error:
            self.write(cell, {"failed": describe(error)})
        if self.args.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def score(self, images: Tensor, count: int | None = None) -> dict[str, Any]:
        """PSNR and rank of pictures [victim, channel, height, width] beside the blank and the class mean."""
        split = self.split.take(count or len(images))
        return compare(images, split, ranks_of)

    # part 1 ----------------------------------------------------------------------------------------------------------

    def part_1(self) -> None:
        names = [name for name in self.args.sizes if f"size/{name}" not in self.known]
        if not names:
            return
        end = PART_1 * self.args.seconds
        seconds = max(BANK * (end - self.spent), self.args.least)
        bank = self.simulate(
            "resnet20", "none", MOST_COPIES, sorted({SIZES[name]["sketch"] for name in names}), seconds
        )
        drawings: list[Tensor] = []
        for place, name in enumerate(names):
            shares = [SIZES[one]["share"] for one in names[place:]]
            seconds = max((end - self.spent) * shares[0] / sum(shares), self.args.least / 3)
            self.try_cell(f"size/{name}", partial(self.size, name, bank, seconds, drawings))
        if len(drawings) > 1:
            self.try_cell("size/mean-of-all", lambda: self.score(torch.stack(drawings).mean(0)) | {"of": len(drawings)})
        self.sheets["sizes"].add("class mean", self.split.class_means)
        self.sheets["sizes"].save()

    def size(self, name: str, bank: Bank, seconds: float, drawings: list[Tensor]) -> dict[str, Any]:
        facts = {key: value for key, value in SIZES[name].items() if key != "share"}
        pool = facts.pop("pool")
        learned = learn(bank, pool, Lesson(**facts), self.split.public[pool], seconds=seconds, means=self.means)
        images = self.draw(learned)
        drawings.append(images)
        self.sheets["sizes"].add(name, images)
        if name == "kept":
            learned.store(self.args.out / "inverter.safetensors", half=True)
        return {**SIZES[name], **learned.facts, **self.score(images)}

    def simulate(self, network: str, defense: str, copies: int, widths: Sequence[int], seconds: float) -> Bank:
        scenario = self.scenario(network, self.split.victims, known=True)
        return simulate(
            scenario, parse_defense(defense), self.split.public, copies=copies, widths=widths, seconds=seconds,
            means=self.means,
        )  # fmt: skip

    def draw(self, learned: Learned) -> Tensor:
        """What it draws of the victims' updates."""
        victims = self.split.victims
        clients = Batch((255 * victims.images).round().to(torch.uint8).unsqueeze(1), victims.labels.unsqueeze(1))
        found = learned.features_of(clients, Seed(0).at("victims"))
        return draw_pictures(learned.network, found.features, found.labels).squeeze(1)

    def scenario(self, network: str, pictures: Batch, known: bool) -> Scenario:
        private = Batch(*(x.unsqueeze(1) for x in pictures))
        names = tuple(f"c{client:04d}" for client in range(len(private.images)))
        return Scenario(
            name="study", model=self.model(network), private=private, names=names, trained=network == "resnet20",
            threat=ThreatModel(knows_defense=known),
        )  # fmt: skip

    def model(self, network: str) -> nn.Module:
        if network == "resnet20":
            from resnet20 import trained_on_cifar10

            return trained_on_cifar10(self.args.root).to(self.args.device)
        return MODELS[network](classes=10, shape=(3, 32, 32), seed=0).to(self.args.device)

    # part 2 ----------------------------------------------------------------------------------------------------------

    def part_2(self) -> None:
        cells = [(network, defense) for defense in self.args.defenses for network in self.args.networks]
        cells = [one for one in cells if f"defense/{one[0]}/{one[1]}" not in self.known]
        for place, (network, defense) in enumerate(cells):
            shares = [NETWORKS[one] for one, _ in cells[place:]]
            whole = (self.left - self.args.reserve) * shares[0] / sum(shares)
            seconds = max((whole - OVERHEAD) / PHASES, 1.0)
            self.try_cell(f"defense/{network}/{defense}", partial(self.defended, network, defense, seconds))
        self.sheets["defenses"].save()

    def defended(self, network: str, defense: str, seconds: float) -> dict[str, Any]:
        """Inverter, search, and search from the inverter; each is given `seconds`."""
        lesson = Lesson(copies=MOST_COPIES, sketch=WIDTHS[network], hidden=1536)
        bank = self.simulate(network, defense, lesson.copies, [lesson.sketch], 0.5 * seconds)
        left = seconds - bank.seconds
        learned = learn(bank, "both", lesson, self.split.public["both"], seconds=left, means=self.means)
        drawn = self.draw(learned)
        file = self.args.out / "cell.safetensors"
        learned.store(file)
        some = self.split.take(self.args.searched).victims
        few = len(some.images)
        seen = observe_agreed(self.scenario(network, some, known=True), parse_defense(defense), Seed(0))[0]
        found: dict[str, Any] = {"seconds": round(seconds, 1), "inverter": self.score(drawn) | learned.facts}
        found["inverter, searched ones"] = self.score(drawn[:few], few)
        rows = {"inverter": drawn[:few]}
        try:
            for name, images, facts in run_searches(seen, file, seconds, self.args.device):
                rows[name] = images
                found[name] = self.score(images, few) | facts
                found[name]["over inverter"] = compare_pairs(images, drawn[:few], some.images)
                if name != "search":
                    found[name]["over search"] = compare_pairs(images, rows["search"], some.images)
        except Exception as error:  # the inverter's own figures are there
            found["search failed"] = describe(error)
        file.unlink(missing_ok=True)
        for name, images in rows.items():
            self.sheets["defenses"].add(f"{network} {defense}: {name}", images)
        self.sheets["defenses"].save()
        return found


def describe(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where.name}, {where.lineno})"


def compare_pairs(one: Tensor, other: Tensor, truth: Tensor) -> dict[str, Any]:
    return interval(psnr(one, truth) - psnr(other, truth))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of the pictures and the trained ResNet20")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=540.0, help="for everything")
    parser.add_argument("--least", type=float, default=12.0, help="seconds that a cell needs at least")
    parser.add_argument("--reserve", type=float, default=10.0, help="seconds to be done before the end")
    parser.add_argument("--victims", type=int, default=300)
    parser.add_argument("--searched", type=int, default=64, help="victims that are searched for")
    parser.add_argument("--gallery", type=int, default=1000)
    parser.add_argument("--pool", type=int, default=0, help="public pictures of each part, at most (0: all)")
    parser.add_argument("--together", type=int, default=512, help="clients simulated at once")
    parser.add_argument("--batch", type=int, default=512, help="of a training step")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--defenses", nargs="*", default=list(DEFENSES))
    return parser.parse_args()


if __name__ == "__main__":
    main()
