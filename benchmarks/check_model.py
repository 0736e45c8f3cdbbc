"""How often `gradveil check-model` finds planted models, how often it accuses honest ones, and what hides from it.

    OMP_NUM_THREADS=1 PYTHONPATH=src python3 benchmarks/check_model.py planted honest blown-up hidden

Prints JSON. Checkpoints of one training run are counted each, though they are not independent.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/inspection"))

from honest_models import ARCHITECTURES, RUNS, STAGES, Checkpoint, blown_up, honest
from planted_models import plant, shipped_variants, variants

from gradveil.attacks.rtf import RobbingTheFed
from gradveil.core.defense import Defense
from gradveil.core.interval import rate_interval
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.base import Dataset
from gradveil.data.photos import photos
from gradveil.inspection import inspect
from gradveil.inspection.finding import Inspection
from gradveil.inspection.front_layer import CHECK as FRONT
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

RECOVERED = 20.0  # dB
LEVELS = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--count", type=int, default=240, help="planted models")
    parser.add_argument("--only", nargs="+", default=list(ARCHITECTURES), help="honest architectures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for part in args.parts:
        began = time.process_time()
        result = PARTS[part](args)
        print(json.dumps({"part": part, **result, "cpu_seconds": round(time.process_time() - began)}, indent=1))


def planted(args: argparse.Namespace) -> dict[str, Any]:
    """By attack: found by the weights' statistics, by these and the pictures', and by everything."""
    counts: Counter[str] = Counter()
    missed: list[str] = []
    for variant in [*variants(args.count), *shipped_variants()]:
        model, images = plant(variant)
        without, with_pictures = inspect(model), inspect(model, images)
        report = {"weights": _but_structure(without), "pictures": _but_structure(with_pictures)}
        report |= {"all, no pictures": without.planted, "all": with_pictures.planted}
        counts.update(f"{variant.attack}: {name}" for name, found in report.items() if found)
        counts[f"{variant.attack}: planted"] += 1
        if not all(report.values()):
            missed.append(f"{variant} by {[name for name, found in report.items() if not found]}")
    return {"counts": dict(counts), "rates": _rates(counts, ("rtf", "cah")), "missed": missed}


def _but_structure(inspection: Inspection) -> bool:
    """Found by what is in a layer, not by where it stands."""
    return any(m.check != FRONT for m in inspection.findings)


def _rates(counts: Counter[str], attacks: Iterable[str]) -> dict[str, Any]:
    rates = {}
    for attack in attacks:
        of = counts[f"{attack}: planted"]
        for name in ("weights", "pictures", "all, no pictures", "all"):
            rates[f"{attack}: {name}"] = _rate(counts[f"{attack}: {name}"], of)
    return rates


def _rate(hits: int, of: int) -> dict[str, Any]:
    interval = rate_interval(hits, of)
    return {"hits": hits, "of": of, "low": round(interval.low, 4), "high": round(interval.high, 4)}


def accused(checkpoints: Iterable[Checkpoint]) -> dict[str, Any]:
    total, without, found = 0, 0, []
    for checkpoint in checkpoints:
        inspection = inspect(checkpoint.model, checkpoint.images)
        total += 1
        without += inspect(checkpoint.model).planted
        if inspection.planted:
            found.append(f"{checkpoint.label}: {inspection.verdict}")
    return {"weights": _rate(without, total), "with pictures": _rate(len(found), total), "found": found}


@dataclass(frozen=True, kw_only=True)
class HiddenRtf(RobbingTheFed):
    """Robbing the Fed with noise on its rows, white or such as pictures hardly excite, and without an even ladder:
    thresholds are each row's own quantiles of public pictures, at random levels."""

    noise: float = 0.0
    kind: str = "white"

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        assert public is not None
        planted = copy.deepcopy(super().plant(model, public, seed))
        first = planted.get_submodule("imprint.first")
        assert isinstance(first, nn.Linear)
        rows, seen = first.weight.data, public.images.flatten(1)
        drawn = torch.randn(rows.shape, generator=seed.at("noise").rng())
        if self.kind == "unseen":
            drawn = unseen(drawn, seen)
        drawn /= drawn.norm(dim=1, keepdim=True)
        rows += self.noise * rows.norm(dim=1, keepdim=True) * drawn
        levels = torch.rand(len(rows), generator=seed.at("levels").rng()).sort().values
        ordered = (seen @ rows.T).sort(0).values
        below = (levels * (len(seen) - 1)).long().clamp_max(len(seen) - 2)
        part, units = levels * (len(seen) - 1) - below, torch.arange(len(rows))
        first.bias.data = -torch.lerp(ordered[below, units], ordered[below + 1, units], part)
        return planted


def unseen(rows: Tensor, pictures: Tensor) -> Tensor:
    """The part of the rows that public pictures, and so probably private ones, hardly excite."""
    basis = torch.linalg.svd(pictures, full_matrices=False).Vh
    return rows - rows @ basis.T @ basis


def hidden(args: argparse.Namespace) -> dict[str, Any]:
    """Detection against recovery, as noise grows."""
    return {f"{kind}, {n} neurons": [_level(kind, n, level) for level in LEVELS] for kind, n in
            (("white", 256), ("white", 32), ("unseen", 256))}  # fmt: skip


@cache
def pictures() -> Dataset:
    return photos(size=16, count=400)


def _level(kind: str, neurons: int, noise: float, batch: int = 8, repeats: int = 8) -> dict[str, Any]:
    data = pictures()
    order = torch.randperm(len(data.images), generator=Seed(0).at("order").rng())
    images, labels = data.images[order], data.targets[order]
    public, held = Batch(images[:200], labels[:200]), slice(200, 200 + batch * repeats)
    private = Batch(images[held].unflatten(0, (repeats, batch)), labels[held].unflatten(0, (repeats, batch)))
    found, seen_by_weights, decibels = 0, 0, []
    for seed in range(repeats):
        model = MODELS["lenet"](classes=labels.shape[1], shape=data.shape, seed=seed, mean=data.mean, std=data.std)
        one = Batch(private.images[seed : seed + 1], private.labels[seed : seed + 1])
        scenario = Scenario(name="hidden", model=model, private=one, names=("c",), public=public,
                            threat=replace(ThreatModel(), may_plant=True))  # fmt: skip
        attack = HiddenRtf(neurons=neurons, noise=noise, kind=kind)
        seen, truth = observe(scenario, Defense(), attack, Seed(seed))
        got = attack.reconstruct(seen, Seed(seed))
        aligned = align(got.images, truth.private.images, got.found)
        decibels += peak_signal_to_noise(aligned.images, truth.private.images).flatten().tolist()
        seen_by_weights += _but_structure(inspect(seen.model))
        found += _but_structure(inspect(seen.model, private.images.flatten(0, 1)))
    recovered = sum(d >= RECOVERED for d in decibels)
    return {"noise": noise, "weights": seen_by_weights, "with pictures": found, "of": repeats,
            "recovered": recovered, "pictures": len(decibels)}  # fmt: skip


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "planted": planted,
    "honest": lambda args: accused(honest(args.only, len(RUNS), STAGES)),
    "blown-up": lambda args: accused(blown_up(STAGES)),
    "hidden": hidden,
}

if __name__ == "__main__":
    main()
