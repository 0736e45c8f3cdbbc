"""What the stages of this study share: pictures, the defenses of LODA's tables, and how pictures are compared."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gradveil.core.compute import Compute, pick_device
from gradveil.core.defense import Defense
from gradveil.core.interval import mean_interval
from gradveil.data import Dataset, load
from gradveil.defenses import DEFENSES
from gradveil.defenses.loda.loda import Loda
from gradveil.metrics import METRICS, Metric
from gradveil.models import MODELS

PUBLIC = 4096  # pictures of CIFAR-100 that encodings start from
OTHERS = 1000  # pictures among which an original is looked for
AT_ONCE = 2048  # pictures that are handed to the encoder

DEFENDED: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("none", {}),
    "loda-1": ("loda-1", {}),
    "loda-2": ("loda-2", {}),
    "mixup 4": ("mixup", {"k": 4}),
    "mixup 6": ("mixup", {"k": 6}),
    "instahide 4": ("instahide", {"k": 4}),
    "instahide 6": ("instahide", {"k": 6}),
    "prune 0.9": ("prune", {"ratio": 0.9}),
    "prune 0.99": ("prune", {"ratio": 0.99}),
}


@dataclass(frozen=True)
class Study:
    """The options of a run and what they name."""

    asked: Namespace

    @cached_property
    def compute(self) -> Compute:
        """Of attacks; `bf16` is for encodings."""
        precision = "tf32" if self.asked.precision == "bf16" else self.asked.precision
        return Compute(device=pick_device(self.asked.device), precision=precision)

    @property
    def on_gpu(self) -> bool:
        return self.compute.device.startswith("cuda")

    @property
    def trains_in_bf16(self) -> bool:
        return self.on_gpu

    @cached_property
    def loaded(self) -> Dataset:
        """The first file of the training set: private pictures first, others to confuse them with at its end."""
        needed = max(self.asked.pictures, self.asked.images + OTHERS)
        return load("cifar10", root=self.asked.root, split="train", limit=max(10_000, needed))

    @cached_property
    def private(self) -> Dataset:
        count = self.asked.pictures
        return replace(self.loaded, images=self.loaded.images[:count], targets=self.loaded.targets[:count])

    @cached_property
    def test(self) -> Dataset:
        return load("cifar10", root=self.asked.root, split="test", limit=self.asked.test)

    @cached_property
    def public(self) -> str:
        """A file of pictures of CIFAR-100, made once; or a set by name."""
        if self.asked.public != "cifar100":
            return self.asked.public
        path: Path = self.asked.out / "public.npz"
        if not path.is_file():
            some = load("cifar100", root=self.asked.root, split="train", limit=PUBLIC, classes=self.asked.classes)
            pictures = (255 * some.images).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
            part = path.with_name(f"public-{os.getpid()}.npz")  # another process may be about to write it, too
            np.savez(part, images=pictures, labels=some.targets.argmax(1).numpy())
            os.replace(part, path)
        return str(path)

    def defense(self, label: str, **options: Any) -> Defense:
        name, settings = DEFENDED[label]
        if name.startswith("loda"):
            settings = {"extractor": self.asked.extractor, "public": self.public, "steps": self.asked.encode_steps}
            settings["bf16"] = self.asked.precision == "bf16"
        return DEFENSES[name](**{**settings, **options})

    def encodings(self, defense: Defense, count: int) -> tuple[Tensor, float]:
        """Of the first private pictures, and the seconds that they took; from the cache where they are there."""
        assert isinstance(defense, Loda)
        begin = time.perf_counter()
        parts = self.private.images[:count].split(AT_ONCE)
        made = torch.cat([defense.encode(part.to(self.compute.device)).cpu() for part in parts])
        return made, time.perf_counter() - begin

    def network(self, name: str) -> nn.Module:
        data = self.private
        kind = {"classes": data.targets.shape[1], "shape": data.shape, "mean": data.mean, "std": data.std}
        return MODELS[name](**kind, seed=self.asked.seed)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """LPIPS twice where its weights are at hand: of pictures as they are, and enlarged, as the product does it."""
        weights = Path(self.asked.root) / "lpips_alex.npz"
        found = {"psnr": METRICS["psnr"]()}
        if weights.is_file():
            small = METRICS["lpips"](weights=weights, resize=None)
            found |= {"lpips": METRICS["lpips"](weights=weights), "lpips_32": small}
        return found

    def compared(self, got: Tensor, truth: Tensor, *, each: bool = True) -> dict[str, Any]:
        """Scores of pictures [n, c, h, w] against their originals; `identified`: nearest among 1,000 others, by pixels
        and by detail."""
        here = self.compute.device
        got, truth = (x.to(here, torch.float32).nan_to_num(0).clamp(0, 1) for x in (got, truth))
        report: dict[str, Any] = {"pictures": len(got)}
        for name, metric in self.metrics.items():
            report[name] = about(metric.score(got, truth), each)
        others = {"gallery": self.loaded.images[-OTHERS:].to(here)}
        for name, metric in (("identified", "retrieval"), ("identified_detail", "retrieval-detail")):
            report[name] = int(METRICS[metric](**others).score(got, truth).sum())
        return report


def about(values: Tensor, each: bool) -> dict[str, Any]:
    values = values.double().flatten().cpu()
    between = mean_interval(values.tolist()) if each else None
    report: dict[str, Any] = {"mean": values.mean().item(), "sd": values.std(correction=0).item()}
    report |= {"min": values.min().item(), "max": values.max().item()}
    report |= {"low": between.low, "high": between.high} if between else {}
    report = {name: round(value, 4) for name, value in report.items()}
    return report | ({"each": [round(x, 3) for x in values.tolist()]} if each else {})
