"""Which reading of equation 4 can be learned from? Networks trained on encodings in each reading, on one core.

    OMP_NUM_THREADS=1 PYTHONPATH=src python3 papers/loda/small.py --root DATA --out OUT

Private are pictures of the first ten classes of CIFAR-100, starts those of its other classes, the extractor is a
ResNet20 trained on CIFAR-10: each part of the paper's setting in small. A line per cell in OUT/small.jsonl; the same
command goes on where it was ended. Features, and the networks that are trained, multiply in bfloat16.
"""

from __future__ import annotations

import argparse
import copy
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from calibrate import LAYERS, READINGS, SHAPE, left, paper
from patches import Patches, known
from resnet20 import ResNet20, trained_on_cifar10
from study import Study
from table import done, tell
from torch import Tensor, nn
from training import Cells, trained
from weights import PRESETS

from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.defenses.loda.features import Features
from gradveil.defenses.loda.half import in_half
from gradveil.defenses.loda.obscure import Recipe, Scale, obscure
from gradveil.defenses.loda.starts import hash_of, start_of
from gradveil.models.start import weights_from
from gradveil.train.centralized import accuracy

CLASSES, AT_ONCE, WAY = 10, 50, 50.0  # the paper's way: 500 steps of 0.1
COMPARED = 256  # pictures that are held against their encodings
NEXT = ("sum, normalized", "mean")  # readings between which the tables do not decide
PATCHES = "patches"
RATES = {"convnet8": 0.1, "lenet5": 0.02, "resnet20": 0.05, "vgg16": 0.02}


class Small(Study):
    """The study with ten classes of CIFAR-100 as private pictures."""

    @property
    def trains_in_bf16(self) -> bool:
        return True

    @cached_property
    def loaded(self) -> Dataset:
        return load("cifar100", root=self.asked.root, split="train", classes=CLASSES)

    @cached_property
    def test(self) -> Dataset:
        return load("cifar100", root=self.asked.root, split="test", classes=CLASSES)

    @cached_property
    def pool(self) -> Tensor:
        """Pictures of the other classes."""
        found = load("cifar100", root=self.asked.root, split="train", limit=4096)
        return found.images[found.targets[:, :CLASSES].sum(1) == 0]

    @cached_property
    def extractor(self) -> nn.Module:
        return trained_on_cifar10(Path(self.asked.root)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @cached_property
    def starts(self) -> Tensor:
        return torch.stack([start_of(self.pool, hash_of(picture), "own", 0) for picture in self.private.images])

    def network(self, name: str) -> nn.Module:
        if name != "resnet20":
            return super().network(name)
        with weights_from(self.asked.seed):
            return ResNet20(CLASSES)

    def made(self, preset: str, reading: str, c: float) -> Tensor:
        """Encodings of all private pictures; those of an earlier run where they are there."""
        path: Path = self.asked.out / f"{preset}-{reading}-{c:g}.pt"
        if not path.is_file():
            torch.save(torch.cat(list(encoded(self, preset, reading, c))), path)
        return torch.load(path, weights_only=True)


def main() -> None:
    study = Small(arguments())
    path = study.asked.out / "small.jsonl"
    study.asked.out.mkdir(parents=True, exist_ok=True)
    for name, cell in cells(study).items():
        if name not in done(path) and study.asked.only in name:
            tell(path, {"stage": "small", "cell": name}, cell, study)


def cells(study: Small) -> Cells:
    """Encodings first; then one network on all of them before the next, so that who ends early has whole rows."""
    asked, found = study.asked, {}
    ways = [(preset, reading) for preset in asked.presets for reading in asked.readings]
    for preset, reading in ways:
        c = asked.c or PRESETS[preset]
        found[f"{preset}, {reading}, c = {c:g}"] = partial(compared, study, preset, reading, c)
    for seed in range(asked.seeds):
        for network in asked.networks:
            found[f"{network}, none, seed {seed}"] = partial(learned, study, network, seed)
            for preset, reading in ways:
                c = asked.c or PRESETS[preset]
                name = f"{network}, {preset}, {reading}, c = {c:g}, seed {seed}"
                found[name] = partial(learned, study, network, seed, (preset, reading, c))
    return found


def encoded(study: Small, preset: str, reading: str, c: float) -> Iterator[Tensor]:
    way = READINGS[reading]
    recipe = Recipe(c=c, steps=study.asked.steps, rate=WAY / study.asked.steps, reduce=way.reduce)
    features = Features(copy.deepcopy(study.extractor), LAYERS[preset], SHAPE)
    scale, extract = Scale.of(way.units, features.model, study.starts), in_half(features)
    for private, starts in zip(study.private.images.split(AT_ONCE), study.starts.split(AT_ONCE), strict=True):
        yield obscure(channels_last(private), channels_last(starts), extract, recipe, scale)


def channels_last(pictures: Tensor) -> Tensor:
    return pictures.contiguous(memory_format=torch.channels_last)


def compared(study: Small, preset: str, reading: str, c: float) -> dict[str, Any]:
    """The first pictures against their encodings, and what the extractor says of both."""
    made = study.made(preset, reading, c)[:COMPARED]
    private, starts = (x[: len(made)] for x in (study.private.images, study.starts))
    row = paper(preset, c) | {"encode_steps": study.asked.steps} | study.compared(made, private, each=False)
    with torch.no_grad():
        answers = [study.extractor(x) for x in (made, private, starts)]
        features = Features(copy.deepcopy(study.extractor), LAYERS[preset], SHAPE)
        shares = [left(layer) for layer in zip(*map(features, (made, private, starts)), strict=True)]
    row["agrees"] = (answers[0].argmax(1) == answers[1].argmax(1)).float().mean().item()
    row["features"] = [round(float(shares[at]), 3) for at in (0, len(shares) // 2, -1)]
    return row | {"logits": round(float(left(answers)), 3)}


def learned(study: Small, network: str, seed: int, way: tuple[str, str, float] | None = None) -> dict[str, Any]:
    """Trained on pictures or encodings: how many test pictures, as they are, are put into their class, in %."""
    images, private, test = study.private.images if way is None else study.made(*way), study.private, study.test
    report: dict[str, Any] = {"encode_steps": study.asked.steps}
    if network == PATCHES:
        share = known(Patches.of(study.pool, seed), images, private.targets, test.images, test.targets)
        return report | {"accuracy": round(100 * share, 2)}
    changed = vars(study.asked) | {"seed": seed, "rate": study.asked.rate or RATES[network]}
    here = replace(study, asked=Namespace(**changed))
    model = trained(here, here.network(network), images)
    report |= {"epochs": here.asked.epochs, "rate": here.asked.rate, "batch_size": here.asked.batch_size}
    return report | {"accuracy": round(100 * accuracy(model, Batch(test.images, test.targets)), 2)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="data", help="folder of CIFAR-100, resnet20_cifar10.npz and lpips_alex.npz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cells whose name holds this")
    parser.add_argument("--pictures", type=int, default=1000, help="private ones")
    parser.add_argument("--steps", type=int, default=150, help="of encoding, together as long as the paper's 500")
    parser.add_argument("--presets", nargs="+", default=list(LAYERS), choices=tuple(LAYERS))
    parser.add_argument("--readings", nargs="+", default=NEXT, choices=tuple(READINGS))
    parser.add_argument("--c", type=float, help="weight; that of the preset if not given")
    parser.add_argument("--networks", nargs="*", default=[PATCHES, "lenet5"], choices=(PATCHES, *RATES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--rate", type=float, help="of training; the network's if not given")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.set_defaults(device="cpu", precision="bf16", seed=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
