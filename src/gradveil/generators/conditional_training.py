"""Training the conditional GAN: hinge loss, spectral normalization, two steps of the critic for one of the generator.

The recipe is SNGAN's with projection (Miyato and Koyama, 2018) and BigGAN's average of the generator (Brock et al.,
2019). Differs: rates of 2e-4 and 4e-4, constant and then down in a straight line. On a GPU all pictures lie there in 8
bits, a step is a CUDA graph, and the host looks at the losses once in a block of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.generators.checkpoint import Checkpoint
from gradveil.generators.gan_course import BLOCK, Drawn, GanCourse
from gradveil.generators.gan_step import Duel, capture_step

CONSTANT, COLDEST = 0.5, 1e-3  # of the run, before the rates go down; of the rates, at the end
ANEW = (100, 1000)  # steps at which the average begins again: what comes before them is not worth keeping


class Reached(NamedTuple):
    step: int
    seconds: float
    critic_loss: float
    generator_loss: float


def train_gan(
    duel: Duel,
    *,
    resume: Path | None = None,
    identity: Mapping[str, object] | None = None,
    on_block: Callable[[Reached], None] | None = None,
) -> Reached:
    """Train to the end of the course. `resume` is where checkpoints go, `identity` what they belong to."""
    course = duel.course
    checkpoint = None if resume is None else Checkpoint(resume, duel, {**course.settings(), **(identity or {})})  # type: ignore[arg-type]
    step, before = checkpoint.load() if checkpoint else (0, 0.0)
    start = saved = time.monotonic() - before
    reached = Reached(step, before, math.nan, math.nan)
    with _tune(course):
        learn = capture_step(duel) if course.captures else duel.learn
        while reached.step < course.steps and not reached.seconds >= (course.seconds or math.inf):
            losses = _block(duel, learn, reached.step, start)
            reached = Reached(_end_of(reached.step, course), time.monotonic() - start, *losses.tolist())
            _check(reached)
            if on_block is not None:
                on_block(reached)
            if checkpoint and time.monotonic() - saved >= course.save_every:
                checkpoint.save(*reached[:2])
                saved = time.monotonic()
    return reached


def _end_of(step: int, course: GanCourse) -> int:
    return min((step // BLOCK + 1) * BLOCK, course.steps)


def _block(duel: Duel, learn: Callable[[Drawn], Tensor], first: int, start: float) -> Tensor:
    """The steps up to the end of the block in which `first` lies."""
    course, losses = duel.course, torch.full((2,), math.nan)
    drawn = duel.draw(first // BLOCK)
    for step in range(first, _end_of(first, course)):
        progress = step / course.steps
        if course.seconds is not None:
            progress = max(progress, (time.monotonic() - start) / course.seconds)
        duel.set_rates(min(1.0, max(COLDEST, (1 - progress) / (1 - CONSTANT))))
        losses = learn(drawn.at(step % BLOCK))
        if step + 1 in ANEW:
            duel.begin_average_anew()
    return losses


def _check(reached: Reached) -> None:
    if not (math.isfinite(reached.critic_loss) and math.isfinite(reached.generator_loss)):
        raise ConfigError(f"a loss is no longer finite after {reached.step} steps, give lower rates", key="rate")


@contextmanager
def _tune(course: GanCourse) -> Iterator[None]:
    """On a GPU, convolutions are tried out first: all steps are alike."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = course.device.startswith("cuda")
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
