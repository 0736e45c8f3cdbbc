"""GAN inversion (ROG, Yue et al., 2023, equations 19 and 20): the generator's picture that is most like a given one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.compute import Compute
from gradveil.core.seeds import Seed, normal
from gradveil.core.types import Latent
from gradveil.engine import chunks
from gradveil.engine.chunks import Trials, bytes_of
from gradveil.engine.descent import Descent, Objective, best_of, eager, graph_steps
from gradveil.engine.optimizer import Adam, CosineDecay
from gradveil.engine.perceptual import Perceptual
from gradveil.generators.conditional import Conditional
from gradveil.generators.generator import Generator

Pixels = Literal["mean", "norm"]
NOISE, CLASS = "noise", "class"
FLOOR = 1e-12  # under the root of a distance: its slope is infinite at 0


@dataclass(frozen=True, kw_only=True)
class GanInversion:
    """Adam in the latent, for every picture from several starts, each the most alike of a few random latents."""

    steps: int = 1000
    restarts: int = 4
    rate: float = 0.05
    drawn: int = 16
    pixels: Pixels = "mean"  # the squared difference as a mean over pixels, or the paper's length of the difference
    perceptual: float = 1.0  # the weight of LPIPS
    reach: float = 3.0  # noise is kept within so many standard deviations, where the generator was trained
    search_class: bool = False  # the embedding of the class too, from that of the label

    def invert(
        self, targets: Targets, generator: Generator, judge: Perceptual | None, seed: Seed, compute: Compute
    ) -> Tensor:
        """One generated picture for each target. Nobody's result depends on who else is there."""
        trials = [(place, start) for place in range(len(targets.images)) for start in range(self.restarts)]

        def likeness(part: Trials) -> Likeness:
            return Likeness(self, targets.take([place for place, _ in part]), generator, judge)

        def footprint() -> int:
            like = likeness(trials[:1])
            return bytes_of(lambda: like(like.random(seed, trials[:1], 0)), compute.device)

        stepper = graph_steps if compute.graphs and compute.device.startswith("cuda") else eager
        parts = chunks.run(lambda part: self.search(likeness(part), part, seed, stepper), trials, compute, footprint)
        loss, images = (torch.cat([part[k] for part in parts]).unflatten(0, (-1, self.restarts)) for k in (0, 1))
        return images[torch.arange(len(images), device=images.device), loss.argmin(1)]

    def search(self, likeness: Likeness, trials: Trials, seed: Seed, stepper) -> tuple[Tensor, Tensor]:
        """Loss and picture of every trial."""
        optimizer = Adam(rate=self.rate, schedule=CosineDecay(floor=0.1))
        descent = Descent(cast(Objective, likeness), optimizer, self.steps)
        end = descent.run(likeness.best_start(seed, trials), stepper)
        with torch.no_grad():
            return end["total"].nan_to_num(torch.inf), likeness.draw(best_of(end))


@dataclass(frozen=True)
class Targets:
    """Pictures to be matched, with the classes that they are said to be of, and whose they are."""

    images: Tensor
    labels: Tensor | None  # None: the generator has no classes, or others
    names: tuple[str, ...]

    def take(self, places: list[int]) -> Targets:
        labels = None if self.labels is None else self.labels[places]
        return Targets(self.images[places], labels, tuple(self.names[place] for place in places))


class Likeness:
    """How far generated pictures are from their targets; what `Descent` asks of an objective and its space."""

    def __init__(self, search: GanInversion, targets: Targets, generator: Generator, judge: Perceptual | None) -> None:
        self.search, self.targets, self.generator, self.judge = search, targets, generator, judge
        self.space, self.fixed = self, self._classes()
        with torch.no_grad():
            self.features = None if judge is None else judge.features(targets.images)

    def _classes(self) -> Tensor | None:
        """The part of the latent that says the class; of an unknown one the mean of all."""
        if not isinstance(self.generator, Conditional):
            return None
        labels, count = self.targets.labels, len(self.targets.images)
        if labels is None:
            labels = self.targets.images.new_full((count, self.generator.classes), 1 / self.generator.classes)
        with torch.no_grad():
            return self.generator.embed(labels)

    @property
    def searches_class(self) -> bool:
        return self.fixed is not None and (self.search.search_class or self.targets.labels is None)

    def draw(self, z: Latent) -> Tensor:
        """The generator's pictures, in the size and colors of the targets."""
        parts = [z[NOISE]] if self.fixed is None else [z[NOISE], z[CLASS] if self.searches_class else self.fixed]
        pictures = self.generator(torch.cat(parts, 1) if len(parts) > 1 else parts[0])
        return fit_size(pictures, self.targets.images)

    def of(self, pictures: Tensor) -> Tensor:
        gap = (pictures - self.targets.images).square().flatten(1)
        loss = gap.mean(1) if self.search.pixels == "mean" else (gap.sum(1) + FLOOR).sqrt()
        if self.judge is None or self.features is None:
            return loss
        return loss + self.search.perceptual * self.judge.distance(self.judge.features(pictures), self.features)

    def __call__(self, z: Latent) -> tuple[Tensor, Tensor, Latent]:
        with torch.enable_grad():
            leaves = {name: x.detach().requires_grad_() for name, x in z.items()}
            value = self.of(self.draw(leaves))
            grads = torch.autograd.grad(value.sum(), list(leaves.values()))
        value = value.detach()
        return value, value, dict(zip(leaves, grads, strict=True))

    def constrain(self, z: Latent) -> Latent:
        return {**z, NOISE: z[NOISE].clamp(-self.search.reach, self.search.reach)}

    @torch.no_grad()
    def best_start(self, seed: Seed, trials: Trials) -> Latent:
        """Of a few random latents the one whose picture is most alike; they are tried in turn, to save memory."""
        best = self.constrain(self.random(seed, trials, 0))
        loss = self.of(self.draw(best))
        for draw in range(1, self.search.drawn):
            other = self.constrain(self.random(seed, trials, draw))
            value = self.of(self.draw(other))
            better = (value < loss).view(-1, 1)
            loss = torch.minimum(value, loss)
            best = {
                name: torch.where(better.view(-1, *[1] * (x.dim() - 1)), other[name], x) for name, x in best.items()
            }
        return best

    def random(self, seed: Seed, trials: Trials, draw: int) -> Latent:
        like, latent = self.targets.images, self.generator.latent
        shape = (self.generator.noise,) if isinstance(self.generator, Conditional) else latent
        streams = zip(self.targets.names, trials, strict=True)
        noise = [normal(shape, seed.at("latent", name, start, draw).rng(), like) for name, (_, start) in streams]
        classes = {CLASS: self.fixed.clone()} if self.searches_class and self.fixed is not None else {}
        return {NOISE: torch.stack(noise), **classes}


def fit_size(pictures: Tensor, like: Tensor) -> Tensor:
    """In the size and the number of channels of others."""
    channels, size = like.shape[1], like.shape[-2:]
    if pictures.shape[1] != channels:
        pictures = pictures.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    if pictures.shape[-2:] != size:
        pictures = F.interpolate(pictures, list(size), mode="bilinear", antialias=True, align_corners=False)
    return pictures.clamp(0, 1)
