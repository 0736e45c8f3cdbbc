"""The pictures and models that the studies of this folder attack, and an attack that tells more than it reports."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.interval import mean_interval
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch, Latent
from gradveil.data import Dataset, load
from gradveil.defenses import DEFENSES
from gradveil.engine.backend import Chosen
from gradveil.engine.descent import Descent, Stepper, best_of
from gradveil.engine.inversion import Inversion, Outcome
from gradveil.metrics import METRICS
from gradveil.metrics.align import align
from gradveil.models import MODELS, load_weights
from gradveil.transforms import Policy

GALLERY = slice(5000, 6000)
FEDSGD = LocalTraining()


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A model and the pictures that are attacked with it; `others` are those that a reconstruction is told from."""

    model: nn.Module
    images: Tensor
    labels: Tensor
    compute: Compute
    training: LocalTraining = FEDSGD
    others: slice | None = None  # the gallery of CIFAR-100 if not given

    def clients(self, count: int, batch: int = 1, first: int = 0) -> Batch:
        """`count` clients with `batch` pictures each."""
        wanted = slice(first, first + count * batch)
        images, labels = self.images[wanted], self.labels[wanted]
        return Batch(images.unflatten(0, (count, batch)), labels.unflatten(0, (count, batch)))

    def gallery(self, defense: Defense) -> dict[str, Tensor]:
        """Other pictures, a thousand of CIFAR-100, as they are and as they would be fed."""
        where = self.others or GALLERY
        others = Batch(self.images[where], self.labels[where])
        fed = defense.batch(others, Seed(5).rng())
        return {"private": others.images.float().cpu(), "fed": fed.images.float().cpu()}

    def observed(
        self, defense: Defense, count: int, *, aware: bool = False, batch: int = 1, first: int = 0, seed: int = 0
    ) -> tuple[Observation, Truth]:
        private = self.clients(count, batch, first)
        names = tuple(f"c{first + i:04d}" for i in range(count))
        threat = ThreatModel(knows_defense=aware)
        scenario = Scenario(
            name="ats", model=self.model, private=private, names=names, training=self.training, threat=threat
        )
        return observe(scenario, defense, Honest(), Seed(seed))  # pyright: ignore[reportArgumentType]


class Honest:
    """A server that sends the model as it is."""

    requires: frozenset[str] = frozenset()

    def plant(self, model: nn.Module, public: Batch | None, seed: Seed) -> nn.Module:
        return model


def joined(rounds: Sequence[Observation], names: Sequence[str]) -> Observation:
    """Rounds of the same model as one with all of their clients, told apart by the names of the rounds."""
    first = rounds[0]
    labels = [one.labels for one in rounds if one.labels is not None]
    return replace(
        first,
        update={key: torch.cat([one.update[key] for one in rounds]) for key in first.update},
        names=tuple(f"{name}/{client}" for name, one in zip(names, rounds, strict=True) for client in one.names),
        labels=torch.cat(labels),
    )


class Telling(Inversion):
    """An inversion that reports two pictures for each of a client: before the transformation, and as it was fed."""

    @classmethod
    def of(cls, attack: Inversion) -> Telling:
        return cls(**{f.name: getattr(attack, f.name) for f in fields(attack) if f.init})

    def attack(self, descent: Descent, start: Latent, stepper: Stepper) -> Outcome:
        end = descent.run(start, stepper)
        space, best = descent.objective.space, best_of(end)
        with torch.no_grad():
            both = torch.cat([space.reveal(best), space.decode(best)], 1)
        total, match = (end[name].masked_fill(end["broke"].isfinite(), torch.nan) for name in ("total", "match"))
        return Outcome(both, total, match, torch.zeros_like(end["done"]), end["broke"])

    def best_restarts(self, seen: Observation, parts: list[Outcome], backend: Chosen) -> Reconstruction:
        twice = None if seen.labels is None else seen.labels.repeat(1, 2, 1)
        return super().best_restarts(replace(seen, labels=twice), parts, backend)


def attacked(attack: Inversion, seen: Observation, truth: Truth, bench: Bench, defense: Defense) -> dict[str, Any]:
    """Both pictures against what they should be; `fed` is what the papers measure, `private` what leaks."""
    return attacked_together(attack, [seen], [truth], bench, [defense])[0]


def attacked_together(
    attack: Inversion,
    rounds: Sequence[Observation],
    truths: Sequence[Truth],
    bench: Bench,
    defenses: Sequence[Defense],
) -> list[dict[str, Any]]:
    """The same attack on rounds that differ in their defense alone, all at once; `seconds` is a round's share."""
    begin = time.perf_counter()
    seen = rounds[0] if len(rounds) == 1 else joined(rounds, [str(place) for place in range(len(rounds))])
    got = Telling.of(attack).reconstruct(seen, Seed(1), bench.compute)
    pictures = got.images.float().cpu().clamp(0, 1)
    seconds = (time.perf_counter() - begin) / len(rounds)
    sizes = [len(one.names) for one in rounds]
    report = []
    for part, loss, truth, defense in zip(pictures.split(sizes), got.loss.split(sizes), truths, defenses, strict=True):
        head = {"seconds": round(seconds, 1), "backend": got.backend, "failed": int((~loss.isfinite()).sum())}
        report.append(head | compared(part, truth, bench.gallery(defense)) | {"notes": got.notes})
    return report


def compared(pictures: Tensor, truth: Truth, others: Mapping[str, Tensor]) -> dict[str, Any]:
    """`identified` counts those that are nearest to their original among all others, transformed too for `fed`; `blank`
    is the PSNR of a gray picture."""
    private, fed = pictures.chunk(2, 1)
    score, report = METRICS["psnr"]().score, {}
    for kind, part, true in (("private", private, truth.private), ("fed", fed, truth.fed)):
        original = true.images.float().cpu()
        aligned = align(part, original).images
        report[f"psnr_{kind}"] = about(score(aligned, original).flatten())
        report[f"blank_{kind}"] = round(score(torch.full_like(original, 0.5), original).mean().item(), 3)
        report[f"identified_{kind}"] = int(METRICS["retrieval"](gallery=others[kind]).score(aligned, original).sum())
    return report


def about(values: Tensor) -> dict[str, Any]:
    between = mean_interval(values.tolist())
    return {
        "mean": round(values.mean().item(), 3),
        "sd": round(values.std().item(), 3) if len(values) > 1 else None,
        "low": round(between.low, 3) if between else None,
        "high": round(between.high, 3) if between else None,
        "best": round(values.max().item(), 2),
        "each": [round(x, 2) for x in values.tolist()],
    }


def pictures_of(args: argparse.Namespace, split: str) -> Dataset:
    """All of the data set, or its first classes where the archives of the others may be missing."""
    options = {} if args.classes is None else {"classes": args.classes}
    return load(args.data, root=args.root, split=split, **options)


def model_of(name: str, data: Dataset, weights: Path | None, device: str) -> nn.Module:
    model = MODELS[name](classes=data.targets.shape[1], shape=data.shape, mean=data.mean, std=data.std)
    if weights is not None:
        load_weights(model, weights)
    return model.to(device).eval()


def bench_of(args: argparse.Namespace, data: Dataset, weights: Path | None) -> Bench:
    compute = Compute(device=args.device, precision=args.precision)
    images, labels = data.images.to(args.device), data.targets.to(args.device)
    return Bench(model=model_of(args.model, data, weights, args.device), images=images, labels=labels, compute=compute)


def policy_of(text: str) -> Policy:
    """A published one: of the code's library, or of the paper's if it has entry 16, which is a shift there only."""
    places = text.replace("+", "-").split("-")
    return Policy.parse(text, "ats-paper" if "16" in places else "ats-code")


def defense_of(text: str) -> Defense:
    if text == "none":
        return Defense()
    return DEFENSES["ats"](policy=text, library=policy_of(text).library.name)


def tell(line: dict[str, Any], out: Path | None) -> None:
    """One line on the screen without the long lists, and all of it in the file."""
    short = {k: {n: v for n, v in x.items() if n != "each"} if isinstance(x, dict) else x for k, x in line.items()}
    print(json.dumps(short), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
