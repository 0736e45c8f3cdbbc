"""How a conditional GAN is trained: the settings, and all that is random in a block of steps."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed

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
