"""Which back end forms the products of gradients: the fastest that can, and a note where that is not the fastest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradveil.core.compute import Backend
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed, uniform
from gradveil.engine.sweep.fx_program import CannotSweep, graph_of
from gradveil.search.per_sample import Inner, Loop, OnePicture, Sweep, Vmap

AGREES = 1e-6  # relative, in float64

BackEnd = Callable[[Tensor, Tensor], Inner]


def chosen(
    one: OnePicture, wanted: Backend, shape: Sequence[int], classes: int
) -> tuple[str, BackEnd, tuple[str, ...]]:
    """Its name, the back end, and why a faster one was not taken."""
    if wanted in ("loop", "vmap"):
        return wanted, Loop(one) if wanted == "loop" else Vmap(one), ()
    try:
        check_sweep(one, shape, classes)
        return "sweep", Sweep(one, graph_of(one.model)), ()
    except CannotSweep as why:
        if wanted == "sweep":
            raise ConfigError(f"--backend sweep: {why}, use --backend auto") from why
        note = f"sweep cannot run this: {why}"
    if not next(iter(one.params.values())).is_cuda:  # measured: there vmap is two to five times slower than a loop
        return "loop", Loop(one), (note, "vmap was not tried: on a CPU it is slower than one picture after the other")
    trouble = trouble_with_vmap(one, shape, classes)
    if trouble is None:
        return "vmap", Vmap(one), (note,)
    return "loop", Loop(one), (note, f"vmap cannot run this: {trouble}")


def check_sweep(one: OnePicture, shape: Sequence[int], classes: int) -> None:
    """Two images with two points each of random pictures in float64, against the reference: whatever a model does
    that no rule foresaw (hooks, shared weights, mixing along the batch) shows here and not in a score."""
    precise = in_double(one)
    fed, labels = drawn((2, 3, *shape), precise), drawn((2, classes), precise).softmax(-1)
    try:
        got, expected = Sweep(precise, graph_of(precise.model))(fed, labels), Loop(precise)(fed, labels)
    except (CannotSweep, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever the model's own code raises
        raise CannotSweep(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}") from error
    off = max(relative(a, b) for a, b in zip(got, expected, strict=True))
    if not off < AGREES:
        raise CannotSweep(f"its result differs from autograd's by {off:.1e}")


def in_double(one: OnePicture) -> OnePicture:
    params = {name: p.double() for name, p in one.params.items()}
    return OnePicture(copy.deepcopy(one.model).double(), one.training, params)


def drawn(shape: Sequence[int], one: OnePicture) -> Tensor:
    return uniform(shape, Seed().rng(), next(iter(one.params.values())))


def relative(got: Tensor, expected: Tensor) -> float:
    """The largest difference of any tensor, relative to its own size or, where it hardly has one, to the largest."""
    size = expected.flatten(0, 1).norm(dim=0)
    apart = (got - expected).flatten(0, 1).norm(dim=0)
    return float((apart / size.clamp_min(1e-12 * float(size.max()) + 1e-300)).max())


def trouble_with_vmap(one: OnePicture, shape: Sequence[int], classes: int) -> str | None:
    """One picture tells whether `torch.func` can trace the model."""
    fed, labels = drawn((1, 1, *shape), one), drawn((1, classes), one).softmax(-1)
    try:
        Vmap(one)(fed, labels)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever the model's own code raises under vmap
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return None
