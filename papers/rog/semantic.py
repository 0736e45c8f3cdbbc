"""ROG against ROGS, as in table 2 of the paper (Yue et al., 2023): what a generator adds, and what it takes away.

    PYTHONPATH=src python3 papers/rog/semantic.py faces --root DATA --generator progan.safetensors --out semantic.jsonl
    PYTHONPATH=src python3 papers/rog/semantic.py cifar100 --root DATA --generator gan.safetensors --out semantic.jsonl

`faces` are those of UTKFace at 128 pixels, drawn by ProGAN (`progan_convert.py`); `cifar100` is its test part, drawn
by the GAN of `gradveil train-gan` (with --avoid cifar100:root=DATA,split=test,limit=1000, among which the victims are).
One JSON line per group of clients, written as soon as it is done, and one with the means of each. Beside ROG and ROGS
stand the controls: `prior` is ROGS of a search that never saw the update; `sample` is what the generator draws of the
class by itself, without a search; `same-class` is another picture of the class, `noise` one of noise (the paper has
these in footnotes). `--tagger` gives tags for the Jaccard score: the weights of
EfficientNet-Lite0, or file.py:factory, as `cifar_tagger.py` for `cifar100`. DATA/lpips_alex.npz gives LPIPS, to the
search too.

With one picture of 32 pixels a client, LeNet-5 and no defense ROG had 23 dB and a Jaccard score of 0.10 by
`cifar_tagger.py` (the first eight victims, 60 steps): it works, and says little of what they show. What ROGS has above
that is the generator's; what it has above `prior` was in the update. The paper has BigGAN on ImageNet, four pictures,
and a tagger of 9,600 tags.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from victims import about, model_of, now, tell

from gradveil.attacks import ATTACKS
from gradveil.attacks.rogs import Rogs, generator_like, targets_of
from gradveil.core.attack import Reconstruction
from gradveil.core.choice import parse_choice
from gradveil.core.compute import Compute, pick_device
from gradveil.core.defense import Defense
from gradveil.core.errors import unknown
from gradveil.core.files import write_whole
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset, load
from gradveil.defenses import DEFENSES
from gradveil.engine.gan_inversion import Likeness
from gradveil.generators.generator import is_user_generator
from gradveil.generators.provenance import check_not_trained_on
from gradveil.transforms.picture import picture_grid
from gradveil.metrics import METRICS, Metric
from gradveil.metrics.align import align
from gradveil.metrics.features import FeatureGallery, of_alexnet
from gradveil.metrics.jaccard import load_tagger

FACES, LPIPS = "utkface200_2000.zip", "lpips_alex.npz"
SHOWN, VICTIMS, GALLERY = 8, 1000, 1000
SHEET = ("original", "rog", "rogs", "prior", "sample")


@dataclass(frozen=True, kw_only=True)
class Study:
    """Pictures, the attack, how it is scored, and where it runs."""

    data: Dataset
    defense: Defense
    attack: Rogs
    metrics: tuple[Metric, ...]
    compute: Compute
    args: argparse.Namespace

    def group(self, number: int) -> dict[str, Tensor]:
        """The pictures of one group of clients as each attack shows them, and as they are."""
        scenario = self.scenario(number)
        seen, truth = observe(scenario, self.defense, self.attack.inner, Seed(0))
        rog = self.attack.inner.reconstruct(seen, Seed(1), self.compute)
        blind = self.attack.inner.prior_only().reconstruct(seen, Seed(1), self.compute)
        found = {"rog": rog, "rogs": self.redrawn(rog, seen), "prior": self.redrawn(blind, seen)}
        found["sample"] = self.sample(rog, seen, number)
        original = truth.private.images.float().cpu()
        shown = {name: align(got.images.float().cpu(), original).images for name, got in found.items()}
        return {"original": original, **shown, **self.controls(truth.private.labels.cpu(), original, number)}

    def redrawn(self, got: Reconstruction, seen: Observation) -> Reconstruction:
        return self.attack.redrawn(got, seen, Seed(1), self.compute)

    @torch.no_grad()
    def sample(self, got: Reconstruction, seen: Observation, number: int) -> Reconstruction:
        """One random latent for each picture; of what was found only the labels are used."""
        generator = generator_like(self.attack.generator, got.images, seen.classes)
        likeness = Likeness(self.attack.search, targets_of(got, generator, seen), generator, None)
        trials = [(place, 0) for place in range(len(likeness.targets.images))]
        drawn = likeness.draw(likeness.random(Seed(0).at("sample", number), trials, 0))
        return replace(got, images=drawn.view_as(got.images))

    def controls(self, labels: Tensor, original: Tensor, number: int) -> dict[str, Tensor]:
        rng, public = Seed(0).at("controls", number).rng(), self.public()
        alike = labels.flatten(0, 1) @ self.data.targets[public].T
        ties = torch.rand(alike.shape, generator=rng)
        other = self.data.images[public][(alike + 1e-3 * ties).argmax(1)].view_as(original)
        return {"same-class": other, "noise": torch.rand(original.shape, generator=rng)}

    def public(self) -> slice:
        return slice(self.args.groups * self.args.clients * self.args.batch, None)

    def scenario(self, number: int) -> Scenario:
        size = (self.args.clients, self.args.batch)
        places = torch.arange(number * size[0] * size[1], (number + 1) * size[0] * size[1]).view(size)
        private = Batch(*(x[places].to(self.compute.device) for x in (self.data.images, self.data.targets)))
        return Scenario(
            name="rogs",
            model=model_of(self.args.model, self.data, self.compute.device),
            private=private,
            names=tuple(f"g{number}c{client}" for client in range(size[0])),
            training=LocalTraining(steps=self.args.local_steps, rate=self.args.local_rate, loss=self.data.loss),
            threat=ThreatModel(knows_defense=not self.args.unaware),
        )

    def scored(self, shown: dict[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
        """Attack or control, metric, and a score for each picture."""
        original = shown["original"]
        for name in [name for name in shown if name != "original"]:
            for metric in self.metrics:
                yield name, metric.name, metric.score(shown[name], original).flatten().double()


def main() -> None:
    args = arguments()
    study = study_of(args)
    kept: dict[str, dict[str, list[Tensor]]] = {}
    head = {"set": args.set, "model": args.model, "batch": args.batch, "local_steps": args.local_steps}
    head |= {"defense": args.defense, "tagger": Path(args.tagger).name}
    for number in range(args.groups):
        begin = now(study.compute)
        shown = study.group(number)
        line: dict[str, Any] = {"group": number, "seconds": round(now(study.compute) - begin, 1)}
        for name, metric, values in study.scored(shown):
            kept.setdefault(name, {}).setdefault(metric, []).append(values)
            line.setdefault(name, {})[metric] = [round(value, 4) for value in values.tolist()]
        write(head | line, args.out)
        if args.sheet is not None and number == 0:
            rows = [shown[name].flatten(0, 1)[:SHOWN] for name in SHEET]
            write_whole(args.sheet, picture_grid(torch.cat(rows), len(rows[0])))
    for name, metrics in kept.items():
        means = {metric: about(torch.cat(values)) for metric, values in metrics.items()}
        tell(head | {"attack": name, "search": args.steps, **means}, args.out)


def write(line: dict[str, Any], out: Path | None) -> None:
    print(json.dumps({key: value for key, value in line.items() if not isinstance(value, dict)}), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def study_of(args: argparse.Namespace) -> Study:
    root, device = Path(args.root), pick_device(args.device)
    faces = {"root": root / FACES, "size": 128}
    data = load("utkface", **faces) if args.set == "faces" else load("cifar100", root=root, split="test")
    first = min(VICTIMS, len(data))
    drawn = torch.randperm(first, generator=Seed(args.seed).at("order").rng())
    order = torch.cat([drawn, torch.arange(first, len(data))])
    data = replace(data, images=data.images[order], targets=data.targets[order])
    lpips = str(root / LPIPS) if (root / LPIPS).is_file() else ""
    attack = ATTACKS["rogs-paper" if args.paper else "rogs"](
        generator=args.generator, lpips=lpips, inner=args.inner, steps=args.steps, restarts=args.restarts
    )
    study = Study(
        data=data,
        defense=defense_of(args.defense),
        attack=cast(Rogs, attack),
        metrics=(),
        compute=Compute(device=device, precision=args.precision, chunk=args.chunk),
        args=args,
    )
    if not is_user_generator(args.generator):
        check_not_trained_on(args.generator, data.images[: study.public().start])
    return replace(study, metrics=tuple(metrics_of(data.images[study.public()][:GALLERY], lpips, args.tagger, data)))


def defense_of(text: str) -> Defense:
    """One of the catalogue with its options, as on the command line."""
    choice = parse_choice(text, "defense")
    if choice.name not in DEFENSES:
        raise unknown("defense", choice.name, list(DEFENSES), "--defense")
    return DEFENSES[choice.name](**choice.options)


def metrics_of(gallery: Tensor, lpips: str, tagger: str, data: Dataset) -> Iterator[Metric]:
    yield from (METRICS["psnr"](), METRICS["ssim"](), METRICS["retrieval"](gallery=gallery))
    if lpips:
        network, source = of_alexnet(Path(lpips))
        yield METRICS["lpips"](weights=lpips)
        features = FeatureGallery(name="AlexNet", network=network, pictures=gallery, source=source)
        yield METRICS["retrieval-features"](features=features)
    if tagger:
        yield METRICS["jaccard"](tagger=load_tagger(tagger, data.shape, data.targets.shape[1]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("faces", "cifar100"))
    parser.add_argument("--root", required=True, help=f"folder with {FACES} or CIFAR-100 and, for LPIPS, {LPIPS}")
    parser.add_argument("--generator", required=True, help="a file, or file.py:factory")
    parser.add_argument("--inner", default="rog", help="what comes before, with its options")
    parser.add_argument("--paper", action="store_true", help="rogs-paper in place of rogs")
    parser.add_argument("--steps", type=int, default=1000, help="of the search in the latent")
    parser.add_argument("--restarts", type=int, default=4)
    parser.add_argument("--groups", type=int, default=4, help="of clients; each is written when it is done")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--local-steps", type=int, default=1)
    parser.add_argument("--local-rate", type=float, default=5e-3)
    parser.add_argument("--model", default="lenet5")
    parser.add_argument("--defense", default="none", help="with its options: qsgd:bits=3")
    parser.add_argument("--unaware", action="store_true", help="the attacker does not know of the defense")
    parser.add_argument("--tagger", default="", help="file of EfficientNet-Lite0, or file.py:factory")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32", choices=("float32", "tf32", "float64"))
    parser.add_argument("--chunk", type=int, help="trials at once; measured unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sheet", type=Path, help="a PNG: originals, ROG, ROGS, prior, samples")
    parser.add_argument("--out", type=Path, help="JSON lines are added to it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
