"""Which back end runs: the fastest that can, and a note where that is not the fastest there is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule

from gradveil.attacks.inversion.distance import Distance
from gradveil.attacks.inversion.matcher import Loop, Matcher, OneTrial, Vmap
from gradveil.attacks.inversion.sweep.match import Sweep
from gradveil.attacks.inversion.sweep.trace import CannotSweep, graph_of
from gradveil.compute import Backend
from gradveil.errors import ConfigError
from gradveil.server import Observation


@dataclass(frozen=True)
class Chosen:
    """A back end, decided once for all chunks. Tracing is done here and not by the chunks, which may run in threads:
    torch.fx changes every module of the process while it traces."""

    name: str
    graph: GraphModule | None = None
    notes: tuple[str, ...] = ()

    def matcher(self, seen: Observation, distance: Distance) -> Matcher:
        one = OneTrial.of(seen, distance)
        if self.graph is not None:
            return Sweep(one, self.graph)
        return Vmap(one) if self.name == "vmap" else Loop(one)


def choose(seen: Observation, distance: Distance, wanted: Backend) -> Chosen:
    one = OneTrial.of(seen.take([0]), distance)
    if wanted in ("loop", "vmap"):
        return Chosen(wanted)
    try:
        graph = graph_of(one.model)
        Sweep(one, graph).check_forward()
        return Chosen("sweep", graph)
    except CannotSweep as why:
        if wanted == "sweep":
            raise ConfigError(f"--backend sweep: {why}, use --backend auto") from why
        note = f"sweep cannot run this: {why}"
    trouble = trouble_with_vmap(one)
    if trouble is None:
        return Chosen("vmap", notes=(note,))
    return Chosen("loop", notes=(note, f"vmap cannot run this: {trouble}"))


def trouble_with_vmap(one: OneTrial) -> str | None:
    """One evaluation of one trial tells whether `torch.func` can trace the model."""
    assert one.seen.labels is not None
    try:
        Vmap(one)(one.seen.labels.new_full((1, one.seen.examples, *one.seen.shape), 0.5))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever the model's own code raises under vmap
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return None
