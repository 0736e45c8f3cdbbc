"""Which reading of equation 4 is the paper's? Encodings of a few pictures in each, beside tables 5 and 6.

    PYTHONPATH=src python3 papers/loda/calibrate.py --root DATA --extractor resnet20-4:extractor.safetensors --out OUT

One core is enough: 4 pictures by 170 steps of 0.3, as long a way as the paper's 500 of 0.1, take 15 s (first five
layers) to a minute (all). `features` is how far the features of the encodings are from the pictures', as a share of how
far those of the starts are, in the first, middle and last of the chosen layers; `logits` the same of what the extractor
answers, and `agrees` how often its class is the same. `detail` is the correlation of picture and encoding without their
coarse colors, beside the largest with any of 1,000 other pictures.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from study import OTHERS
from torch import Tensor, nn
from weights import TABLES

from gradveil.core.progress import leave_if_stopped
from gradveil.data import load
from gradveil.defenses.loda.extractor import check_extractor, load_extractor
from gradveil.defenses.loda.features import Features
from gradveil.defenses.loda.obscure import Reduce, Scale, Units, of_length_one, project, size
from gradveil.defenses.loda.starts import hash_of, start_of
from gradveil.metrics import METRICS

SHAPE, POOL, SMALL = (3, 32, 32), 512, 1e-12
LAYERS = {"loda-1": "first5", "loda-2": "all"}
WEIGHTS = {"loda-1": (20, 10, 50), "loda-2": (30, 10, 50)}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What equation 4 leaves open. `norms`: distances themselves instead of their squares, as section 4.1 has it."""

    reduce: Reduce = "sum"
    units: Units = "unit"
    norms: bool = False

    def objective(self, got: Sequence[Tensor], wanted: Sequence[Tensor], apart: Tensor, c: float) -> Tensor:
        alike = torch.stack([size(a - b, self.reduce) for a, b in zip(got, wanted, strict=True)]).sum(0)
        pixels = size(apart, self.reduce)
        if self.norms:
            alike, pixels = (x.clamp_min(SMALL).sqrt() for x in (alike, pixels))
        return alike - c * pixels


READINGS = {
    "sum": Reading(),
    "mean": Reading(reduce="mean"),
    "sum, normalized": Reading(units="normalized"),
    "mean, normalized": Reading(reduce="mean", units="normalized"),
    "norms": Reading(norms=True),
}


def main() -> None:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    private, others = load("cifar10", root=asked.root, split="train", limit=asked.images + OTHERS).images.split(
        [asked.images, OTHERS]
    )
    pool = load("cifar100", root=asked.root, split="train", limit=POOL).images
    starts = torch.stack([start_of(pool, hash_of(picture), "own", 0) for picture in private])
    model = load_extractor(check_extractor(asked.extractor), SHAPE).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for preset in asked.presets:
        for name in asked.readings:
            for c in asked.c or WEIGHTS[preset]:
                head = {"preset": preset, "reading": name, "c": c, "steps": asked.steps, "rate": asked.rate}
                head |= {"pictures": len(private)}
                features = Features(copy.deepcopy(model), LAYERS[preset], SHAPE)
                made = encoded(private, starts, features, READINGS[name], c, asked)
                report = compared(made, private, starts, features, model, Path(asked.root))
                report |= by_detail(made, private, others)
                tell(asked.out / "calibration.jsonl", head | paper(preset, c) | report)


def encoded(
    private: Tensor, starts: Tensor, features: Features, reading: Reading, c: float, asked: argparse.Namespace
) -> Tensor:
    """Algorithm 1 with another objective."""
    scale = Scale.of(reading.units, features.model, private)
    wanted, x = [feature.detach() for feature in features(private)], scale.inside(starts)
    for _ in range(asked.steps):
        leave_if_stopped()
        x = x.detach().requires_grad_()
        value = reading.objective(features(scale.pictures(x)), wanted, x - scale.inside(private), c)
        (slope,) = torch.autograd.grad(value.sum(), x)
        x = project(x.detach() - asked.rate * of_length_one(slope), scale)
    return scale.pictures(x).clamp(0, 1)


@torch.no_grad()
def compared(
    made: Tensor, private: Tensor, starts: Tensor, features: Features, model: nn.Module, root: Path
) -> dict[str, Any]:
    weights = root / "lpips_alex.npz"
    metrics = {"psnr": METRICS["psnr"]()}
    if weights.is_file():
        metrics |= {
            "lpips": METRICS["lpips"](weights=weights),
            "lpips_32": METRICS["lpips"](weights=weights, resize=None),
        }
    report: dict[str, Any] = {"psnr_of_starts": metrics["psnr"].score(starts, private).mean()}
    report |= {name: metric.score(made, private).mean() for name, metric in metrics.items()}
    report |= {"logits": left([model(x) for x in (made, private, starts)])}
    report["agrees"] = (model(made).argmax(1) == model(private).argmax(1)).float().mean()
    report["at_0_or_1"] = ((made < 1e-3) | (made > 1 - 1e-3)).float().mean()
    shares = [left(layer) for layer in zip(*map(features, (made, private, starts)), strict=True)]
    rounded = {name: round(float(value), 3) for name, value in report.items()}
    return rounded | {"features": [round(float(shares[at]), 3) for at in (0, len(shares) // 2, -1)]}


def by_detail(made: Tensor, private: Tensor, others: Tensor) -> dict[str, Any]:
    """Whose detail has an encoding? Correlation with the picture's own and the largest with that of 1,000 others."""
    encodings, own, rest = (F.normalize(detail(x)) for x in (made, private, others))
    alike, others_alike = (encodings * own).sum(1), (encodings @ rest.T).amax(1)
    report = {"detail": alike.mean(), "detail_of_others": others_alike.mean()}
    found = {"identified_by_detail": int((alike > others_alike).sum())}
    return {name: round(float(value), 3) for name, value in report.items()} | found


def detail(pictures: Tensor) -> Tensor:
    """What is left of pixels without the mean of the 5 x 5 around them. [picture, pixel]"""
    return (pictures - F.avg_pool2d(pictures, 5, 1, 2, count_include_pad=False)).flatten(1)


def left(outputs: Sequence[Tensor]) -> Tensor:
    """Of the distance between the start and the picture, how much is left between the encoding and the picture."""
    made, private, start = outputs
    return (size(made - private, "sum").sum() / size(start - private, "sum").sum()).sqrt()


def paper(preset: str, c: float) -> dict[str, Any]:
    report = TABLES[preset].get(int(c))
    return {} if report is None else {"paper": {"psnr": report[1], "lpips": report[2]}}


def tell(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="data", help="folder of CIFAR-10, of CIFAR-100 and of lpips_alex.npz")
    parser.add_argument("--extractor", required=True, help="MODEL:FILE.safetensors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--steps", type=int, default=170)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--presets", nargs="+", default=list(LAYERS), choices=tuple(LAYERS))
    parser.add_argument("--readings", nargs="+", default=list(READINGS), choices=tuple(READINGS))
    parser.add_argument("--c", type=float, nargs="+", help="weights; those of the tables if not given")
    return parser.parse_args()


if __name__ == "__main__":
    main()
