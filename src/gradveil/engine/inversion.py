"""Inversion: find the pictures whose update would look like the one received. A paper is a value of this class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from gradveil.core.attack import Attack, Reconstruction, Requirement, Use, times
from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Latent
from gradveil.engine import chunks
from gradveil.engine.backend import Chosen, choose
from gradveil.engine.chunks import Trials, bytes_of
from gradveil.engine.descent import Descent, Objective, Stepper, Stop, best_of, eager, graph_steps
from gradveil.engine.distance import Distance, Unmatched
from gradveil.engine.estimate_training import estimate_training
from gradveil.engine.finish import Finish, Selection, by_objective, clamp, files_of
from gradveil.engine.labels import InferLabels, given_or_idlg, without_rules
from gradveil.engine.layers import Part, narrow
from gradveil.engine.optimizer import Optimizer
from gradveil.engine.priors.group import together
from gradveil.engine.priors.prior import Prior, applicable
from gradveil.engine.soft_steps import soften_steps
from gradveil.engine.spaces.generator import Decoded
from gradveil.engine.spaces.joint_labels import BoundJointLabels, JointLabels, free
from gradveil.engine.spaces.space import Pixels, Space
from gradveil.engine.spaces.unknown_view import (
    Guesses,
    Viewed,
    alone,
    learns_the_policy,
    likeliest,
    steps_of,
    through,
    transforms,
)

Prepare = Callable[[Trials], tuple[Descent, Latent]]


@dataclass(frozen=True, kw_only=True)
class Inversion(Attack):
    """Distance x space x priors x optimizer; restarts run beside the clients and the best is kept.

    `select` chooses among a client's restarts by what the attacker sees; the truth is not in reach. `part` of the
    layers is matched, whatever the model.
    """

    distance: Distance
    space: Space
    optimizer: Optimizer
    steps: int
    priors: tuple[Prior, ...] = ()
    restarts: int = 1
    infer_labels: InferLabels = given_or_idlg  # None: they are part of the space
    finish: Finish = clamp
    select: Selection = by_objective
    stop: Stop = Stop()
    part: Part = "all"

    def networks(self) -> tuple[str, ...]:
        space = self.undefended().space
        drawn = space.file if isinstance(space, Decoded) else ""
        return (*((drawn,) if drawn else ()), *files_of(self.finish))

    def prior_only(self) -> Inversion:
        return replace(self, distance=Unmatched())

    def scaled(self, factor: float) -> Inversion:
        return replace(self, steps=times(self.steps, factor))

    @property
    def evaluations(self) -> tuple[int, int]:
        return self.steps * self.restarts, self.steps * self.restarts

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        seen, estimates = self.complete_training(seen.average_rounds(), compute)
        plain, unknown = self.free_targets(seen)
        seen = replace(seen, labels=plain.infer_labels(seen))
        priors, missing = applicable(plain.priors, seen)
        attack, guesses = replace(plain, priors=priors).adapt(seen, seed, compute)
        return attack.search(seen, seed, compute, estimates + unknown + missing + guesses)

    def free_targets(self, seen: Observation) -> tuple[Inversion, tuple[str, ...]]:
        """Where no rule reads the targets, they are searched with the pictures, if the space allows it."""
        why = "" if seen.labels is not None else without_rules(seen)
        if not why or not isinstance(self.space, Pixels):
            return self, ()
        note = f"targets are searched with the pictures: {why}"
        return replace(self, space=JointLabels(self.space), infer_labels=free), (note,)

    @property
    def uses(self) -> frozenset[Use]:
        learns = learns_the_policy(self.space)
        return frozenset({"surrogate"}) if learns else frozenset({"surrogate", "views"})

    @property
    def requires(self) -> frozenset[Requirement]:
        return frozenset({"views"}) if isinstance(self.space, Viewed) else frozenset()

    def undefended(self) -> Inversion:
        return replace(self, space=self.space.inner) if isinstance(self.space, Viewed) else self

    def adapt(self, seen: Observation, seed: Seed, compute: Compute) -> tuple[Inversion, tuple[str, ...]]:
        """Looking through the views that a known defense leaves, for each client the likeliest."""
        views = seen.knowledge.views
        if not views or "views" not in self.uses or isinstance(self.distance, Unmatched):
            return self, ()

        def match(guesses: Guesses) -> Tensor:
            return self.scout(seen, seed, compute, through(self.space, views, guesses), len(guesses[seen.names[0]]))

        guesses, notes = likeliest(match, seen.names, views, seen.examples)
        return replace(self, space=through(self.space, views, guesses)), notes

    def scout(self, seen: Observation, seed: Seed, compute: Compute, space: Space, guesses: int) -> Tensor:
        """How well each guess of a client matches after a short search, [client, guess]."""
        short = replace(self, space=space, steps=steps_of(self.steps), restarts=guesses, priors=alone(self.priors))
        parts, _ = short.outcomes(seen, seed, compute)
        return torch.cat([part.match for part in parts]).unflatten(0, (len(seen.names), guesses))

    def complete_training(self, seen: Observation, compute: Compute) -> tuple[Observation, tuple[str, ...]]:
        """With steps that a search can follow, and as many at the rate that can be worked out, if nobody said them."""
        if isinstance(self.distance, Unmatched):
            return seen, ()
        with compute.active():
            seen, softened = soften_steps(seen)
            if seen.training_known:
                return seen, softened
            training, notes = estimate_training(seen, compute)
        return replace(seen, training=training, training_known=True), softened + notes

    def search(self, seen: Observation, seed: Seed, compute: Compute, notes: tuple[str, ...]) -> Reconstruction:
        """With labels decided, if they are, and priors that fit the model."""
        parts, backend = self.outcomes(seen, seed, compute)
        return self.best_restarts(seen, parts, replace(backend, notes=(*backend.notes, *notes)))

    def outcomes(self, seen: Observation, seed: Seed, compute: Compute) -> tuple[list[Outcome], Chosen]:
        """All restarts of all clients, in order, and the back end that ran them."""
        if self.part != "all":
            return replace(self, distance=narrow(self.distance, self.part, seen), part="all").outcomes(
                seen, seed, compute
            )
        trials = [(client, restart) for client in range(len(seen.names)) for restart in range(self.restarts)]
        with compute.active():
            backend = choose(seen, self.distance, compute.backend)
            prepare = partial(self.prepare, seen, seed, backend)
            unit = together(self.priors, self.restarts)
            footprint = partial(self.footprint, prepare, trials[: max(2, unit)], compute)
            graphs = compute.graphs and compute.device.startswith("cuda") and backend.name != "loop"
            stepper = graph_steps if graphs else eager  # a loop may look at numbers on the host, a graph may not
            parts = chunks.run(lambda part: self.attack(*prepare(part), stepper), trials, compute, footprint, unit)
        return parts, backend

    def footprint(self, prepare: Prepare, few: Trials, compute: Compute) -> int:
        """Bytes that one evaluation takes for a trial."""
        descent, start = prepare(few)
        return bytes_of(lambda: descent.objective(start), compute.device) // len(few)

    def attack(self, descent: Descent, start: Latent, stepper: Stepper) -> Outcome:
        """One chunk of trials, from start to end."""
        end = descent.run(start, stepper)
        fell = (end["early"] - end["total"]) / end["early"].abs().clamp_min(1e-12)
        space, best = descent.objective.space, best_of(end)
        labels = space.reveal_labels(best) if isinstance(space, BoundJointLabels) else None
        # a search that broke off is no weaker attack but none: its best point so far must not count as a result
        total, match = (end[name].masked_fill(end["broke"].isfinite(), torch.nan) for name in ("total", "match"))
        fed = space.decode(best) if transforms(self.space) else None
        return Outcome(space.reveal(best), total, match, fell < 0.01, end["broke"], labels, fed)

    def prepare(self, seen: Observation, seed: Seed, backend: Chosen, trials: Trials) -> tuple[Descent, Latent]:
        """The descent of a chunk and where it starts."""
        each = seen.take([client for client, _ in trials])
        restarts = torch.tensor([restart for _, restart in trials])
        space, matcher = self.space.bind(each, restarts), backend.matcher(each, self.distance)
        labels = space.labels if isinstance(space, BoundJointLabels) else None
        objective = Objective(matcher, space, tuple(prior.bind(each, restarts) for prior in self.priors), labels)
        starts = [space.init(seed, each.names[i], restart) for i, (_, restart) in enumerate(trials)]
        start = {name: torch.stack([s[name] for s in starts]) for name in starts[0]}
        return Descent(objective, self.optimizer, self.steps, self.stop), start

    def best_restarts(self, seen: Observation, parts: list[Outcome], backend: Chosen) -> Reconstruction:
        def gathered(pick: Callable[[Outcome], Tensor]) -> Tensor:
            return torch.cat([pick(part) for part in parts]).unflatten(0, (len(seen.names), self.restarts))

        images, total = gathered(lambda o: o.images), gathered(lambda o: o.total)
        match, converged = gathered(lambda o: o.match), gathered(lambda o: o.converged)
        broke = gathered(lambda o: o.broke)
        chosen = self.select(images, total, match)
        rows = torch.arange(len(seen.names), device=chosen.device)
        labels = seen.labels
        if labels is None:
            labels = gathered(lambda o: cast(Tensor, o.labels))[rows, chosen]
        return Reconstruction(
            images=self.finish(images[rows, chosen]),
            labels=labels,
            found=torch.ones(images.shape[0], images.shape[2], dtype=torch.bool, device=images.device),
            loss=total[rows, chosen],
            backend=backend.name,
            fell_back=backend.fell_back,
            notes=backend.notes,
            converged=converged[rows, chosen],
            broke=broke[rows, chosen],
            fed=gathered(lambda o: cast(Tensor, o.fed))[rows, chosen].clamp(0, 1) if transforms(self.space) else None,
        )


@dataclass(frozen=True)
class Outcome:
    """What a chunk brought: best point of every trial."""

    images: Tensor
    total: Tensor
    match: Tensor
    converged: Tensor
    broke: Tensor
    labels: Tensor | None = None  # where they were searched for
    fed: Tensor | None = None  # as the model saw them, where that is not what is reported
