"""GradSim (ATS, Gao et al., eq. 5): how alike the gradients of two pictures are, for many pictures at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gradveil.core.compute import Backend, Compute
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.engine import chunks
from gradveil.engine.chunks import bytes_of, trials_that_fit
from gradveil.engine.sweep.fx_program import CannotSweep, graph_of
from gradveil.search.per_sample import Inner, Loop, OnePicture, Sweep, Vmap

AGREES = 1e-6  # relative, in float64

BackEnd = Callable[[Tensor, Tensor], Inner]


def choose_back_end(
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
            raise ConfigError(f"sweep cannot run this: {why}, use `backend = auto`", key="backend") from why
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
    fed, labels = draw_like((2, 3, *shape), precise), draw_like((2, classes), precise).softmax(-1)
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


def draw_like(shape: Sequence[int], one: OnePicture) -> Tensor:
    return uniform(shape, Seed().rng(), next(iter(one.params.values())))


def relative(got: Tensor, expected: Tensor) -> float:
    """The largest difference of any tensor, relative to its own size or, where it hardly has one, to the largest."""
    size = expected.flatten(0, 1).norm(dim=0)
    apart = (got - expected).flatten(0, 1).norm(dim=0)
    return float((apart / size.clamp_min(1e-12 * float(size.max()) + 1e-300)).max())


def trouble_with_vmap(one: OnePicture, shape: Sequence[int], classes: int) -> str | None:
    """One picture tells whether `torch.func` can trace the model."""
    fed, labels = draw_like((1, 1, *shape), one), draw_like((1, classes), one).softmax(-1)
    try:
        Vmap(one)(fed, labels)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever the model's own code raises under vmap
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return None


PROBE = 16  # pictures at once when the memory is measured: few would count the libraries' own workspace as theirs


@dataclass(frozen=True)
class Products:
    """Inner products of gradients by parameter tensor: with the target's, with themselves, the target's with itself."""

    cross: Float[Tensor, "image point tensor"]
    own: Float[Tensor, "image point tensor"]
    target: Float[Tensor, "image tensor"]

    def flat(self) -> Tensor:
        """Cosine of all tensors taken as one vector [image, point] (eq. 5)."""
        cross, own = self.cross.double().sum(-1), self.own.double().sum(-1)
        return cosine(cross, own, self.target.double().sum(-1)[:, None])

    def by_tensor(self) -> Tensor:
        """Cosine of every tensor [image, point, tensor]; a tensor whose gradient is zero counts as 0."""
        return cosine(self.cross.double(), self.own.double(), self.target.double()[:, None])

    def per_tensor(self) -> Tensor:
        """Mean over tensors of their cosines [image, point], as in the code of ATS."""
        return self.by_tensor().mean(-1)

    def with_target(self) -> Products:
        """The target itself as one more, last point: its gradient is there already."""
        last = self.target[:, None]
        return Products(torch.cat([self.cross, last], 1), torch.cat([self.own, last], 1), self.target)


def cosine(cross: Tensor, own: Tensor, target: Tensor) -> Tensor:
    lengths = own.sqrt() * target.sqrt()  # each by itself: the product of two small squares would vanish
    return torch.where(lengths > 0, cross / torch.where(lengths > 0, lengths, 1.0), 0.0).clamp(-1.0, 1.0)


class Similarity:
    """Gradients of pictures under one model, compared. `backend` says which way was taken, `notes` why not a faster.

    Tensors are in the order of `names`. On a CPU there is one chunk of images per core; neither chunk nor back end
    changes the meaning of a result.
    """

    def __init__(self, model: nn.Module, training: LocalTraining, compute: Compute = Compute()) -> None:
        self.one, self.compute = OnePicture.of(model, training, compute), compute
        self.names = tuple(self.one.params)
        self.backend: str | None = None  # decided by the first pictures
        self.notes: tuple[str, ...] = ()
        self._run: BackEnd | None = None
        self._each: dict[tuple[int, ...], int] = {}

    def __call__(
        self,
        points: Float[Tensor, "image point channel height width"],
        target: Float[Tensor, "image channel height width"],
        labels: Float[Tensor, "image class"],
    ) -> Products:
        with self.compute.active():
            run = self._run or self.decide(target[:1], labels[:1])
            size = self.pictures_at_once(points, target, labels, run)
            blocks = points.split(min(points.shape[1], max(1, size - 1)), 1)
            parts = [self.block(run, torch.cat([target[:, None], block], 1), labels, size) for block in blocks]
        cross, own = (torch.cat([each[i][:, 1:] for each in parts], 1) for i in (0, 1))
        return Products(cross, own, parts[0].own[:, 0])

    def block(self, run: BackEnd, fed: Tensor, labels: Tensor, size: int) -> Inner:
        """All images, as many at once as `size` pictures allow, in chunks of one size."""
        images, pictures = fed.shape[:2]
        cores = 1 if self.on_gpu else torch.get_num_threads()
        at_once = chunks.even(images, max(1, size // pictures), min(cores, images))

        def some(trials: list[tuple[int, int]]) -> Inner:
            here = slice(trials[0][0], trials[-1][0] + 1)
            return run(self.place(fed[here]), self.place(labels[here]))

        trials = [(image, picture) for image in range(images) for picture in range(pictures)]
        compute = replace(self.compute, chunk=at_once * pictures)
        parts = chunks.run(some, trials, compute, lambda: 0, together=pictures)
        return Inner(*(torch.cat(found) for found in zip(*parts, strict=True)))

    def pictures_at_once(self, points: Tensor, target: Tensor, labels: Tensor, run: BackEnd) -> int:
        if self.compute.chunk is not None:
            return self.compute.chunk
        each = self.footprint(points, target, labels, run)
        if self.on_gpu:
            return min(chunks.ON_A_GPU, trials_that_fit(each, self.compute.device))
        most = chunks.ON_A_CORE // 2 if each > chunks.HEAVY else chunks.ON_A_CORE
        return min(most, trials_that_fit(each, "cpu", torch.get_num_threads()))

    def footprint(self, points: Tensor, target: Tensor, labels: Tensor, run: BackEnd) -> int:
        """Bytes of one picture, measured once for a size of pictures."""
        shape = tuple(target.shape[1:])
        if shape not in self._each:
            some = torch.cat([target[:1], points[0, : PROBE - 1]])[None]
            fed, label = self.place(some), self.place(labels[:1])
            self._each[shape] = bytes_of(lambda: run(fed, label), self.compute.device) // fed.shape[1]
        return self._each[shape]

    @property
    def on_gpu(self) -> bool:
        return self.compute.device.startswith("cuda")

    def place(self, x: Tensor) -> Tensor:
        return x.to(self.compute.device, self.compute.dtype)

    def decide(self, picture: Tensor, label: Tensor) -> BackEnd:
        """The fastest back end that can run this model, once and for all."""
        self.backend, self._run, self.notes = choose_back_end(
            self.one, self.compute.backend, picture.shape[1:], label.shape[1]
        )
        return self._run
