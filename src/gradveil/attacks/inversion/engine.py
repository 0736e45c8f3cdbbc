"""Inversion: find the pictures whose update would look like the one received. A paper is a value of this class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.attacks.base import Attack, Reconstruction
from gradveil.attacks.inversion import chunks
from gradveil.attacks.inversion.backend import choose_backend
from gradveil.attacks.inversion.chunks import Trials
from gradveil.attacks.inversion.descent import Descent, Objective, Stepper, Stop, best_of, eager, graphed
from gradveil.attacks.inversion.distance import Distance
from gradveil.attacks.inversion.finish import clamp
from gradveil.attacks.inversion.labels import given_or_idlg
from gradveil.attacks.inversion.matcher import OneTrial
from gradveil.attacks.inversion.optimizer import Optimizer
from gradveil.attacks.inversion.prior import Prior
from gradveil.attacks.inversion.selection import Selection, by_objective
from gradveil.attacks.inversion.space import Space
from gradveil.compute import Compute
from gradveil.seeds import Seed
from gradveil.server import Observation
from gradveil.types import Images, Labels, Latent


@dataclass(frozen=True, kw_only=True)
class Inversion(Attack):
    """Distance x space x priors x optimizer; restarts run beside the clients and the best is kept.

    `select` chooses among a client's restarts by what the attacker sees; the truth is not in reach.
    """

    distance: Distance
    space: Space
    optimizer: Optimizer
    steps: int
    priors: tuple[Prior, ...] = ()
    restarts: int = 1
    infer_labels: Callable[[Observation], Labels] = given_or_idlg
    finish: Callable[[Images], Images] = clamp
    select: Selection = by_objective
    stop: Stop = Stop()

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        seen = replace(seen, labels=self.infer_labels(seen))
        trials = [(client, restart) for client in range(len(seen.names)) for restart in range(self.restarts)]
        with compute.active():
            parts = chunks.run(lambda part: self.attack(seen, part, seed, compute), trials, seen, compute)
        return self.best_restarts(seen, parts)

    def attack(self, seen: Observation, trials: Trials, seed: Seed, compute: Compute) -> Outcome:
        """One chunk of trials, from start to end."""
        descent, start, backend, notes = self.prepare(seen, trials, seed, compute)
        end = descent.run(start, self.stepper(compute))
        fell = (end["early"] - end["total"]) / end["early"].abs().clamp_min(1e-12)
        images = descent.objective.space.reveal(best_of(end))
        return Outcome(images, end["total"], end["match"], fell < 0.01, backend, notes)

    def prepare(
        self, seen: Observation, trials: Trials, seed: Seed, compute: Compute
    ) -> tuple[Descent, Latent, str, tuple[str, ...]]:
        """The descent of a chunk and where it starts, on the back end that can run it."""
        each = seen.take([client for client, _ in trials])
        restarts = torch.tensor([restart for _, restart in trials])
        space = self.space.bind(each)
        backend, matcher, notes = choose_backend(OneTrial.of(each, self.distance), compute.backend)
        objective = Objective(matcher, space, tuple(prior.bind(each, restarts) for prior in self.priors))
        starts = [space.init(seed, each.names[i], restart) for i, (_, restart) in enumerate(trials)]
        start = {name: torch.stack([s[name] for s in starts]) for name in starts[0]}
        return Descent(objective, self.optimizer, self.steps, self.stop), start, backend, notes

    def stepper(self, compute: Compute) -> Stepper:
        return graphed if compute.graphs and compute.device.startswith("cuda") else eager

    def best_restarts(self, seen: Observation, parts: list[Outcome]) -> Reconstruction:
        def gathered(pick: Callable[[Outcome], Tensor]) -> Tensor:
            return torch.cat([pick(part) for part in parts]).unflatten(0, (len(seen.names), self.restarts))

        images, total = gathered(lambda o: o.images), gathered(lambda o: o.total)
        match, converged = gathered(lambda o: o.match), gathered(lambda o: o.converged)
        chosen = self.select(images, total, match)
        rows = torch.arange(len(seen.names), device=chosen.device)
        assert seen.labels is not None
        return Reconstruction(
            images=self.finish(images[rows, chosen]),
            labels=seen.labels,
            found=torch.ones(images.shape[0], images.shape[2], dtype=torch.bool, device=images.device),
            loss=total[rows, chosen],
            backend=parts[0].backend,
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            converged=converged[rows, chosen],
        )


@dataclass(frozen=True)
class Outcome:
    """What a chunk brought: best point of every trial."""

    images: Tensor
    total: Tensor
    match: Tensor
    converged: Tensor
    backend: str
    notes: tuple[str, ...]
