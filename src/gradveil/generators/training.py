"""The loop that trains a generator: one rate from warm to cold, checkpoints, and the same end after any interruption.

On a GPU all pictures lie there in 8 bits, the numbers of an epoch are drawn at once, and no step waits for another.
A limit in seconds cools the rate down in time; such a run depends on the clock and is not repeated bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.hashes import own_version
from gradveil.core.seeds import Seed
from gradveil.generators.checkpoint import Checkpoint
from gradveil.generators.pictures import batches

WARM_UP = 0.02  # of all steps
BETAS = (0.9, 0.99)
Feed = Callable[[Tensor, int, Seed], Iterator[tuple[slice, Tensor]]]


@dataclass(frozen=True, kw_only=True)
class Course:
    """How long, how fast and where. `seconds` ends it early; `save_every` is how much an interruption may cost."""

    epochs: int = 200
    seconds: float | None = None
    batch_size: int = 32
    rate: float = 6e-4
    seed: int = 0
    device: str = "cpu"
    bf16: bool = False
    save_every: float = 60.0  # seconds

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or not 0 < self.rate < 1 or not (self.seconds or 1) > 0:
            raise ConfigError(
                f"train-generator: {self.epochs} epochs, batches of {self.batch_size}, a rate of {self.rate:g} and "
                f"{self.seconds} seconds, take 1 or more of the first two, a rate under 1 and seconds above 0"
            )

    def settings(self) -> dict[str, object]:
        """What decides about the result; None is left out."""
        decisive = {name: value for name, value in asdict(self).items() if name not in ("device", "save_every")}
        return {name: value for name, value in decisive.items() if value is not None}

    def autocast(self) -> AbstractContextManager:
        return torch.autocast(torch.device(self.device).type, torch.bfloat16) if self.bf16 else nullcontext()

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """On a GPU all parameters are moved in one kernel."""
        fused = self.device.startswith("cuda")
        return torch.optim.Adam(network.parameters(), lr=self.rate, betas=BETAS, fused=fused)


class Learner(Protocol):
    """What is trained: networks, their optimizers, and one step."""

    @property
    def networks(self) -> Mapping[str, nn.Module]: ...

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]: ...

    def begin(self, pictures: int, seed: Seed) -> None:
        """Draw what an epoch needs beyond the order of its pictures."""
        ...

    def learn(self, images: Tensor, here: slice) -> Tensor:
        """One step on the pictures at these places of the epoch; the loss stays on the device."""
        ...


class Progress(NamedTuple):
    epoch: int  # behind us
    loss: float
    seconds: float
    steps: int


def train(
    learner: Learner,
    pictures: Tensor,
    course: Course,
    *,
    resume: Path | None = None,
    identity: Mapping[str, object] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
    feed: Feed = batches,
) -> Progress:
    """Train on pictures [n, c, h, w] in 8 bits. `resume` is where checkpoints go, `identity` what they belong to.

    `feed` makes the batches of an epoch of the pictures [n, h, w, c], a size and a seed.
    """
    checkpoint = None if resume is None else Checkpoint(resume, learner, {**course.settings(), **(identity or {})})
    done, spent = checkpoint.load() if checkpoint else (0, 0.0)
    clock = Clock(course, spent, each=max(len(pictures) // course.batch_size, 1))
    resident = pictures.permute(0, 2, 3, 1).contiguous().to(course.device)
    state = Progress(done, math.nan, spent, done * clock.each)
    while state.epoch < course.epochs and not clock.is_over():
        state = _epoch(learner, resident, course, clock, state, feed)
        if on_epoch is not None:
            on_epoch(state)
        if checkpoint and clock.is_time_to_save():
            checkpoint.save(state.epoch, state.seconds)
    return state


def _epoch(learner: Learner, pictures: Tensor, course: Course, clock: Clock, state: Progress, feed: Feed) -> Progress:
    stream, steps, loss = Seed(course.seed).at("train-generator", state.epoch), state.steps, torch.tensor(math.nan)
    learner.begin(len(pictures), stream)
    for here, images in feed(pictures, course.batch_size, stream):
        rate = course.rate * warmth(clock.progress(steps))
        for optimizer in learner.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = rate
        loss, steps = learner.learn(images, here), steps + 1
        if clock.is_over():
            break
    if not math.isfinite(loss.item()):
        raise ConfigError(f"the loss is no longer finite after {steps} steps, give a lower rate", key="rate")
    return Progress(state.epoch + 1, loss.item(), clock.spent(), steps)


def warmth(progress: float) -> float:
    """The rate relative to its peak: up in a straight line, down along a cosine."""
    if progress < WARM_UP:
        return max(progress / WARM_UP, 0.01)
    return 0.5 * (1 + math.cos(math.pi * min((progress - WARM_UP) / (1 - WARM_UP), 1.0)))


class Clock:
    """How far a course is, by steps or by seconds, whichever is further."""

    def __init__(self, course: Course, spent: float, each: int) -> None:
        self.course, self.before, self.each = course, spent, each
        self.start = self.saved = time.monotonic()

    def spent(self) -> float:
        return self.before + time.monotonic() - self.start

    def progress(self, steps: int) -> float:
        by_steps = steps / (self.course.epochs * self.each)
        return max(by_steps, self.spent() / self.course.seconds) if self.course.seconds else by_steps

    def is_over(self) -> bool:
        return self.course.seconds is not None and self.spent() >= self.course.seconds

    def is_time_to_save(self) -> bool:
        due = time.monotonic() - self.saved >= self.course.save_every
        self.saved = time.monotonic() if due else self.saved
        return due


def course_metadata(course: Course, end: Progress) -> dict[str, object]:
    """For the metadata of what was trained."""
    reached = {"epochs": end.epoch, "steps": end.steps, "seconds_spent": f"{end.seconds:.1f}"}
    versions = {"version": own_version(), "torch": torch.__version__}
    return {**course.settings(), "epochs_planned": course.epochs, **reached, **versions}
