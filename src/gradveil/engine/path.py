"""A search in phases: from coarse pictures to fine ones, from much smoothing to little, each from where the last ended.

A coarse picture has a sixteenth of the unknowns, and a strong prior few bad valleys: the search finds its way early and
spends its later steps on detail. Every phase's pictures are candidates, since the last phase may fit noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.backend import Chosen
from gradveil.engine.inversion import Inversion, Outcome
from gradveil.engine.priors.prior import TotalVariation
from gradveil.engine.spaces.bicubic import Bicubic
from gradveil.engine.spaces.space import Pixels
from gradveil.engine.spaces.started import Started
from gradveil.engine.spaces.unknown_view import within


@dataclass(frozen=True)
class Phase:
    """An equal share of the steps: on pictures `factor` times smaller (1: the pixels), with this weight of TV."""

    factor: int
    tv: float


@dataclass(frozen=True, kw_only=True)
class Path(Inversion):
    """An inversion in phases; its own space and priors are those of a single search, such as the one that guesses
    views, and its other priors hold in every phase. `steps` are those of all phases together."""

    phases: tuple[Phase, ...]

    def free_targets(self, seen: Observation) -> tuple[Inversion, tuple[str, ...]]:
        """Phases carry pictures alone: without targets there is none, and `infer_labels` says so."""
        return self, ()

    def search(self, seen: Observation, seed: Seed, compute: Compute, notes: tuple[str, ...]) -> Reconstruction:
        found: list[Outcome] = []
        backend = Chosen("priors")
        for number, phase in enumerate(self.phases):
            stage = self.stage(number, phase, seen, found[-1].images if found else None)
            parts, backend = stage.outcomes(seen, seed.at("phase", number) if number else seed, compute)
            found.append(join(parts))
        every = replace(self, restarts=self.restarts * len(found))
        return every.best_restarts(
            seen, [self.merge(found)], replace(backend, notes=tuple(dict.fromkeys((*backend.notes, *notes))))
        )

    def stage(self, number: int, phase: Phase, seen: Observation, images: Tensor | None) -> Inversion:
        """The search of one phase."""
        space = self.space_of(phase)
        if images is not None:
            each = images.unflatten(0, (len(seen.names), self.restarts))
            space = Started(inner=space, pictures=dict(zip(seen.names, each, strict=True)))
        smooth = (TotalVariation(phase.tv),) if phase.tv else ()
        others = tuple(prior for prior in self.priors if not isinstance(prior, TotalVariation))
        return replace(self, space=within(self.space, space), priors=(*smooth, *others), steps=self.share(number))

    def space_of(self, phase: Phase) -> Pixels | Bicubic:
        if phase.factor == 1:
            return Pixels(start="gray")
        return Bicubic(factor=phase.factor, start="gray", normalized=True, boxed=True)

    def share(self, number: int) -> int:
        """Steps of a phase: equal shares, the rest to the first ones."""
        each, more = divmod(self.steps, len(self.phases))
        return max(1, each + (number < more))

    def merge(self, found: list[Outcome]) -> Outcome:
        """All phases as restarts of one search, [client, phase x restart]; what they minimized differs in TV alone."""

        def gather(tensors: list[Tensor]) -> Tensor:
            return torch.stack([x.unflatten(0, (-1, self.restarts)) for x in tensors], 1).flatten(0, 2)

        match, end = gather([one.match for one in found]), [found[-1].converged] * len(found)
        images, broke = gather([one.images for one in found]), gather([one.broke for one in found])
        return Outcome(images.clamp(0, 1), match, match, gather(end), broke)


def join(parts: list[Outcome]) -> Outcome:
    """The chunks of one search."""
    names = ("images", "total", "match", "converged", "broke")
    return Outcome(*(torch.cat([getattr(part, name) for part in parts]) for name in names))
