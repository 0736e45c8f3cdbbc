"""A search, and where it was on its way. Looking costs it nothing: points are copied, and drawn when it is over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Latent
from gradveil.engine.backend import choose
from gradveil.engine.descent import Carry, Descent, Stepper, best_of, eager, graph_steps
from gradveil.engine.finish import keep
from gradveil.engine.inversion import Inversion


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The best point so far, and its match, of every client."""

    step: int
    match: Tensor
    best: Latent


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What a search found, and its moments as pictures: [client, picture, channel, height, width] each."""

    images: Tensor
    loss: Tensor
    backend: str
    moments: tuple[Moment, ...] = ()
    descent: Descent | None = None

    def pictures(self, moment: Moment) -> Tensor:
        assert self.descent is not None
        return self.descent.objective.space.reveal(dict(moment.best)).clamp(0, 1)


def search(attack: Inversion, seen: Observation, compute: Compute) -> Watched:
    """As an audit runs it, in chunks; nothing is done to the pictures at the end."""
    got = replace(attack, finish=keep).reconstruct(seen, Seed(1), compute)
    return Watched(images=got.images, loss=got.loss, backend=got.backend)


def watch(attack: Inversion, seen: Observation, compute: Compute, steps: Collection[int]) -> Watched:
    """The same search of one restart, all clients at once, with its points after these steps."""
    assert attack.restarts == 1
    seen, taken = replace(seen, labels=attack.infer_labels(seen)), list[Moment]()
    with compute.active(), torch.no_grad():
        backend = choose(seen, attack.distance, compute.backend)
        descent, start = attack.prepare(seen, Seed(1), backend, [(c, 0) for c in range(len(seen.names))])
        graphs = compute.graphs and compute.device.startswith("cuda") and backend.name != "loop"
        end = attack.attack(descent, start, looking(graph_steps if graphs else eager, frozenset(steps), taken))
    return Watched(images=end.images, loss=end.total, backend=backend.name, moments=tuple(taken), descent=descent)


def looking(stepper: Stepper, steps: frozenset[int], taken: list[Moment]) -> Stepper:
    """The stepper, with copies of the best points after some steps."""

    def made(descent: Descent, carry: Carry) -> Callable[[], Carry]:
        step, count = stepper(descent, carry), 0

        def one() -> Carry:
            nonlocal count
            now, count = step(), count + 1
            if count in steps:
                best = {name: x.clone() for name, x in best_of(now).items()}
                taken.append(Moment(step=count, match=now["match"].clone(), best=best))
            return now

        return one

    return made
