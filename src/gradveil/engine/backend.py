"""Which back end runs: the fastest that can, and a note where that is not the fastest there is."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.fx import GraphModule

from gradveil.core.compute import Backend
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed, normal, uniform
from gradveil.engine.distance import Distance, Unmatched
from gradveil.engine.matcher import Loop, Matcher, NoMatch, OneTrial, Vmap
from gradveil.engine.sweep.fx_program import CannotSweep, graph_of
from gradveil.engine.sweep.match import Sweep, refuse_what_needs_autograd


@dataclass(frozen=True)
class Chosen:
    """A back end, decided once for all chunks. Tracing is done here and not by the chunks, which may run in threads:
    torch.fx changes every module of the process while it traces."""

    name: str
    graph: GraphModule | None = None
    notes: tuple[str, ...] = ()
    fell_back: bool = False  # a faster one could not run

    def matcher(self, seen: Observation, distance: Distance) -> Matcher:
        if self.name == "priors":
            return NoMatch()
        one = OneTrial.of(seen, distance)
        if self.graph is not None:
            return Sweep(one, self.graph)
        return Vmap(one.by_outer_products()) if self.name == "vmap" else Loop(one)


def choose(seen: Observation, distance: Distance, wanted: Backend) -> Chosen:
    if isinstance(distance, Unmatched):
        return Chosen("priors")
    if wanted in ("loop", "vmap"):
        return Chosen(wanted)
    one = OneTrial.of(seen.take([0]), distance)
    try:
        if seen.labels is None:
            raise CannotSweep("it holds labels fixed, and here they are searched for")
        refuse_what_needs_autograd(one)  # before a copy in double precision is made for nothing
        check_sweep(seen.take([0, 0]), distance)
        return Chosen("sweep", graph_of(one.model))
    except CannotSweep as why:
        if wanted == "sweep":
            raise ConfigError(f"sweep cannot run this: {why}, use `backend = auto`", key="backend") from why
        note = f"sweep cannot run this: {why}"
    trouble = trouble_with_vmap(one)
    if trouble is None:
        return Chosen("vmap", notes=(note,), fell_back=True)
    return Chosen("loop", notes=(note, f"vmap cannot run this: {trouble}"), fell_back=True)


def check_sweep(seen: Observation, distance: Distance) -> None:
    """Two trials of random pictures in float64, against the reference. Whatever a model does that no rule foresaw
    (hooks, draws, changes in place, shared weights, mixing along the batch) shows here and not in a report."""
    seen = in_double(seen)
    one = OneTrial.of(seen, distance)
    fed = uniform((2, seen.examples, *seen.shape), Seed().rng(), next(iter(seen.update.values())))
    try:
        (value, slope), (reference, expected) = Sweep(one, graph_of(one.model))(fed), Loop(one)(fed)
    except (CannotSweep, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever the model's own code raises
        raise CannotSweep(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}") from error
    for off in (_relative(value, reference), _relative(slope, expected)):
        if not off < 1e-6:
            raise CannotSweep(f"its result differs from autograd's by {off:.1e}")


def in_double(seen: Observation) -> Observation:
    """A round like this one in float64. Labels and updates are drawn: a client's own may be broken, and a broken
    client must not choose the back end of the others."""
    model, rng = copy.deepcopy(seen.model).double(), Seed().rng()
    update = {name: normal(u.shape, rng, u.double()) for name, u in seen.update.items()}
    like = next(iter(update.values()))
    labels = seen.target.draw(rng, like, len(seen.names), seen.examples)
    return replace(seen, model=model, update=update, labels=labels)


def _relative(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).norm() / expected.norm().clamp_min(1e-30))


def trouble_with_vmap(one: OneTrial) -> str | None:
    """One evaluation of one trial tells whether `torch.func` can trace the model."""
    like = next(iter(one.seen.update.values()))
    fed = like.new_full((1, one.seen.examples, *one.seen.shape), 0.5)
    labels = one.seen.target.even(like, 1, one.seen.examples)
    try:
        Vmap(one).joint(fed, labels)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever the model's own code raises under vmap
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return None
