"""Training the conditional GAN: hinge loss, spectral normalization, two steps of the critic for one of the generator.

The recipe is SNGAN's with projection (Miyato and Koyama, 2018) and BigGAN's average of the generator (Brock et al.,
2019). Differs: rates of 2e-4 and 4e-4, constant and then down in a straight line. On a GPU all pictures lie there in 8
bits, a step is a CUDA graph, and the host looks at the losses once in a block of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.generators.checkpoint import Checkpoint
from gradveil.generators.gan_step import Duel, captured

BETAS = (0.0, 0.9)
BLOCK = 32  # steps whose numbers are drawn at once


@dataclass(frozen=True, kw_only=True)
class GanCourse:
    """How long, how fast and where. `seconds` ends it early, with the rates down by then."""

    steps: int = 20_000
    seconds: float | None = None
    batch_size: int = 128
    critic_steps: int = 2
    rate: float = 2e-4
    critic_rate: float = 4e-4
    average: float = 0.999
    seed: int = 0
    device: str = "cpu"
    bf16: bool = False
    graphs: bool = True
    save_every: float = 30.0  # seconds

    def __post_init__(self) -> None:
        counts = min(self.steps, self.batch_size - 1, self.critic_steps)  # one picture has no statistics
        if counts < 1 or not (self.seconds or 1) > 0 or not 0 <= self.average < 1:
            raise ConfigError("train-gan: take steps and critic-steps from 1, batch-size from 2 and seconds above 0")
        if not 0 < self.rate < 1 or not 0 < self.critic_rate < 1:
            raise ConfigError(f"train-gan: rates of {self.rate:g} and {self.critic_rate:g}, take numbers from 0 to 1")

    def settings(self) -> dict[str, object]:
        """What decides about the result; None is left out."""
        aside = ("device", "save_every", "graphs")
        return {name: value for name, value in asdict(self).items() if name not in aside and value is not None}

    @property
    def captures(self) -> bool:
        return self.graphs and self.device.startswith("cuda")

    def autocast(self) -> AbstractContextManager:
        """A cache of rounded weights would be part of a graph and never be renewed."""
        kind = torch.device(self.device).type
        return torch.autocast(kind, torch.bfloat16, cache_enabled=False) if self.bf16 else nullcontext()

    def optimizer(self, network: nn.Module, rate: float) -> torch.optim.Optimizer:
        """On a GPU the rate is a tensor, so that a graph reads it anew."""
        if not self.device.startswith("cuda"):
            return torch.optim.Adam(network.parameters(), lr=rate, betas=BETAS)
        on_device = torch.tensor(rate, device=self.device)
        return torch.optim.Adam(network.parameters(), lr=on_device, betas=BETAS, foreach=True, capturable=True)


class Drawn(NamedTuple):
    """All that is random in a block, or in one step of it: which pictures, which way round, which noise and classes."""

    real: Tensor  # [step, critic step, picture]
    mirrored: Tensor
    noise: Tensor  # [step, critic step + 1, picture, number]
    like: Tensor  # pictures whose classes the generated ones are to have

    @classmethod
    def of(cls, block: int, pictures: int, noise: int, course: GanCourse) -> Drawn:
        rng = Seed(course.seed).at("train-gan", block).rng()
        real = (BLOCK, course.critic_steps, course.batch_size)
        made = (BLOCK, course.critic_steps + 1, course.batch_size)
        parts = (
            torch.randint(pictures, real, generator=rng),
            torch.rand(real, generator=rng) < 0.5,
            torch.randn(*made, noise, generator=rng),
            torch.randint(pictures, made, generator=rng),
        )
        if not course.device.startswith("cuda"):
            return cls(*parts)
        return cls(*(part.pin_memory().to(course.device, non_blocking=True) for part in parts))

    def at(self, step: int) -> Drawn:
        return Drawn(*(part[step] for part in self))


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
        learn = captured(duel) if course.captures else duel.learn
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
    drawn = duel.drawn(first // BLOCK)
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
