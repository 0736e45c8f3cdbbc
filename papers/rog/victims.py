"""The round of section 4.2 of ROG, the pictures that the studies of this folder attack, and what is said of them.

Victims are among the first 160 pictures of imagenet128_500.zip in the order of its labels.csv: 32 classes of five.
They are dealt out class by class (the first of every class, then the second of every class, ...), so that sixteen in a
row have sixteen labels. Networks may be trained on the pictures from 160 on (`--skip 160`), which are also the gallery.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from watch import Watched, search, watch

from gradveil.attacks.rog import rog
from gradveil.core.compute import Compute, pick_device
from gradveil.core.defense import Defense
from gradveil.core.interval import mean_interval
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.data.image_zip import imagenet
from gradveil.engine.finish import Enhance, Finish, Sequence, clamp, equalize, keep
from gradveil.engine.inversion import Inversion
from gradveil.generators.provenance import check_not_trained_on
from gradveil.metrics import METRICS, Metric
from gradveil.metrics.align import align
from gradveil.models import MODELS

ARCHIVE, LPIPS = "imagenet128_500.zip", "lpips_alex.npz"
VICTIMS, OF_A_CLASS = 160, 5
BATCH, LOCAL_STEPS, RATE = 16, 5, 5e-3
CURVES = ("psnr", "lpips")


def dealt() -> Tensor:
    """Places of the victims in the archive, class after class in turn."""
    return torch.arange(VICTIMS).view(-1, OF_A_CLASS).T.flatten()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A model, the pictures and how they are scored."""

    data: Dataset
    model: nn.Module
    compute: Compute
    metrics: tuple[Metric, ...]
    enhancer: str = ""
    local_steps: int = LOCAL_STEPS

    def victims(self, clients: int, batch: int) -> Batch:
        """`clients` of `batch` pictures each; beyond 160 the same pictures come again, in other company."""
        order = dealt()
        places = order[torch.arange(clients * batch) % len(order)].view(clients, batch)
        return Batch(*(x[places].to(self.compute.device) for x in (self.data.images, self.data.targets)))

    def observed(
        self, clients: int, defense: Defense, *, aware: bool = False, batch: int = BATCH
    ) -> tuple[Observation, Truth]:
        scenario = Scenario(
            name="rog",
            model=self.model,
            private=self.victims(clients, batch),
            names=tuple(f"c{i:04d}" for i in range(clients)),
            training=LocalTraining(steps=self.local_steps, rate=RATE),
            threat=ThreatModel(knows_defense=aware),
        )
        return observe(scenario, defense, rog(), Seed(0))

    def attacked(
        self, attack: Inversion, seen: Observation, truth: Truth, steps: Collection[int] = ()
    ) -> dict[str, Any]:
        """One search, scored as it is and, with an enhancer, as that makes it. Pictures under `images`.

        With `steps` the search is watched, and `moments` has what it showed after each of them.
        """
        begin = now(self.compute)
        got = watch(attack, seen, self.compute, steps) if steps else search(attack, seen, self.compute)
        report: dict[str, Any] = {"seconds": round(now(self.compute) - begin, 2), "backend": got.backend}
        report |= {"failed": int((~got.loss.isfinite()).sum()), "loss": about(got.loss.cpu())}
        images = {}
        for name, finish in self.finishes(attack.finish).items():
            images[name], scores = self.scored(finish(got.images.float()), truth)
            report |= {f"{metric}{'_' * bool(name)}{name}": about(values) for metric, values in scores.items()}
        return report | {"images": images} | ({"moments": self.seen_at(got, truth)} if steps else {})

    def finishes(self, finish: Finish) -> dict[str, Finish]:
        """Without a name: what the search itself gives. Equalizing comes before the enhancer, and is told alone too."""
        first = {"equalized": finish} if finish is equalize else {}
        enhance = Enhance(self.enhancer) if self.enhancer else keep
        last = {"enhanced": Sequence((finish, enhance)) if first else enhance} if self.enhancer else {}
        return {"": clamp, **first, **last}

    def seen_at(self, got: Watched, truth: Truth) -> list[dict[str, Any]]:
        """Step, match of every client, and the scores of every picture by PSNR and, with its weights, LPIPS."""
        report = []
        for moment in got.moments:
            scores = self.scored(got.pictures(moment), truth, CURVES)[1]
            report.append({"step": moment.step, "match": moment.match.cpu(), **scores})
        return report

    def scored(self, pictures: Tensor, truth: Truth, only: Collection[str] = ()) -> tuple[Tensor, dict[str, Tensor]]:
        original = truth.private.images.float().cpu()
        aligned = align(pictures.clamp(0, 1).float().cpu(), original).images
        asked = [metric for metric in self.metrics if not only or metric.name in only]
        return aligned, {metric.name: metric.score(aligned, original).flatten() for metric in asked}


def now(compute: Compute) -> float:
    if compute.device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def about(values: Tensor) -> dict[str, Any]:
    between = mean_interval(values.tolist())
    report = {"mean": short(values.mean().item()), "best": short(values.max().item())}
    bounds = {"low": short(between.low), "high": short(between.high)} if between else {}
    return report | bounds | {"each": [short(x) for x in values.tolist()]}


def short(x: float) -> float:
    """Five digits, however small: a sum of squares may be 1e-6."""
    return float(f"{x:.5g}")


def tell(line: dict[str, Any], out: Path | None) -> None:
    """One line on the screen without the long lists, and all but the pictures in the file."""
    kept = {key: value for key, value in line.items() if key not in ("images", "moments")}
    short = {k: {n: v for n, v in x.items() if n != "each"} if isinstance(x, dict) else x for k, x in kept.items()}
    print(json.dumps(short), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(kept) + "\n")


def model_of(name: str, data: Dataset, device: str) -> nn.Module:
    """Untrained and, as in the paper's code, without normalization of the pictures."""
    return MODELS[name](classes=data.targets.shape[1], shape=data.shape).to(device).eval()


def bench_of(args: argparse.Namespace, model: str = "") -> Bench:
    root, device = Path(args.root), pick_device(args.device)
    data = imagenet(root=root / ARCHIVE, size=args.size)
    metrics = [METRICS["psnr"](), METRICS["ssim"](), METRICS["retrieval"](gallery=data.images[VICTIMS:])]
    if (root / LPIPS).is_file():
        metrics.append(METRICS["lpips"](weights=root / LPIPS))
    if args.enhancer:
        check_not_trained_on(args.enhancer, data.images[:VICTIMS])
    return Bench(
        data=data,
        model=model_of(model or args.model, data, device),
        compute=Compute(device=device, precision=args.precision, chunk=args.chunk),
        metrics=tuple(metrics),
        enhancer=args.enhancer,
        local_steps=args.local_steps,
    )


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options that all studies share."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--root", required=True, help=f"folder with {ARCHIVE} and, for LPIPS, {LPIPS}")
    made.add_argument("--device", default="auto")
    made.add_argument("--precision", default="float32", choices=("float32", "tf32", "float64"))
    made.add_argument("--chunk", type=int, help="clients at once; measured unless given")
    made.add_argument("--clients", type=int, default=4)
    made.add_argument("--steps", type=int, default=100)
    made.add_argument("--rate", type=float, default=0.05, help="of ROG's search; larger where steps are few")
    made.add_argument("--local-steps", type=int, default=LOCAL_STEPS)
    made.add_argument("--size", type=int, default=128)
    made.add_argument("--model", default="lenet5", help="lenet5, vgg7 or resnet18-plain; lenet is LeNetZhu")
    made.add_argument("--enhancer", default="", help="file of gradveil train-generator enhancer")
    made.add_argument("--out", type=Path, help="JSON lines are added to it")
    return made
