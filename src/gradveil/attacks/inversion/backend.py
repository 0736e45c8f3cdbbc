"""Which back end runs: the fastest that can, and a note where that is not the fastest there is."""

from __future__ import annotations

import torch

from gradveil.attacks.inversion.matcher import Loop, Matcher, OneTrial, Vmap
from gradveil.attacks.inversion.sweep.match import Sweep
from gradveil.attacks.inversion.sweep.trace import CannotSweep
from gradveil.compute import Backend
from gradveil.errors import ConfigError


def choose_backend(one: OneTrial, wanted: Backend) -> tuple[str, Matcher, tuple[str, ...]]:
    if wanted == "loop":
        return "loop", Loop(one), ()
    if wanted == "vmap":
        return "vmap", Vmap(one), ()
    try:
        return "sweep", Sweep(one), ()
    except CannotSweep as why:
        if wanted == "sweep":
            raise ConfigError(f"--backend sweep: {why}, use --backend auto") from why
        note = f"sweep cannot run this: {why}"
    trouble = trouble_with_vmap(one)
    if trouble is None:
        return "vmap", Vmap(one), (note,)
    return "loop", Loop(one), (note, f"vmap cannot run this: {trouble}")


def trouble_with_vmap(one: OneTrial) -> str | None:
    """One evaluation of one trial tells whether `torch.func` can trace the model."""
    assert one.seen.labels is not None
    first = OneTrial(one.model, one.seen.take([0]), one.distance)
    try:
        Vmap(first)(first.seen.labels.new_full((1, one.seen.examples, *one.seen.shape), 0.5))  # type: ignore[union-attr]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever the model's own code raises under vmap
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return None
