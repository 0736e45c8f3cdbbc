"""Training an enhancer (ROG, Yue et al., 2023, appendix A): absolute error and a discriminator, on spoiled pictures.

Differs: a rate of 4e-4 where the paper has 1e-5, since a few thousand pictures have to do; hinge loss; the weights of
the two losses and the size of the noise, which the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.generators.critic import PatchDiscriminator, critic_loss, generator_loss
from gradveil.generators.degrade import Damage, degrade, noise_bank
from gradveil.generators.enhancer import KIND, Enhancer, UNet
from gradveil.generators.pictures import PublicPictures
from gradveil.generators.provenance import record_of
from gradveil.generators.quality import Figures, figures_of
from gradveil.generators.stored import store_network
from gradveil.generators.training import Course, Progress, course_metadata, train
from gradveil.models.start import weights_from

RATE = 4e-4
NOISE = 0.1
ADVERSARIAL = 0.005


@dataclass(frozen=True, kw_only=True)
class Task:
    """How much noise is to be undone, and what fooling the discriminator counts beside the absolute error."""

    noise: float = NOISE
    adversarial: float = ADVERSARIAL

    def __post_init__(self) -> None:
        if not 0 <= self.noise <= 1 or not 0 <= self.adversarial <= 100:
            raise ConfigError(f"enhancer: noise {self.noise}, adversarial {self.adversarial}: take 0 to 1, 0 to 100")


PLAIN, PLAIN_TASK = Course(rate=RATE), Task()


class Restoration:
    """Spoiled pictures to good ones, before a judge that learns too."""

    def __init__(self, network: UNet, judge: PatchDiscriminator, task: Task, course: Course) -> None:
        self.task, self.course = task, course
        self.networks = {"network": network, "judge": judge}
        self.optimizers = {name: course.optimizer(one) for name, one in self.networks.items()}
        self.bank = noise_bank(Seed(course.seed).at(KIND), course.device)

    def begin(self, pictures: int, seed: Seed) -> None:
        self.damage = Damage.draw(pictures, self.task.noise, seed.at("damage")).to(self.course.device)

    def learn(self, images: Tensor, here: slice) -> Tensor:
        spoiled = degrade(images, self.damage.at(here), self.bank)
        with self.course.autocast():
            made = self.networks["network"](spoiled)
        if self.task.adversarial:
            self._teach_judge(images, made.detach())
        loss = F.l1_loss(made.float(), images)
        with self.course.autocast():
            fooling = generator_loss(self.networks["judge"](made)) if self.task.adversarial else 0.0
        self._move("network", loss + self.task.adversarial * fooling)
        return loss.detach()

    def _teach_judge(self, real: Tensor, made: Tensor) -> None:
        with self.course.autocast():
            opinion = self.networks["judge"](torch.cat([real, made.to(real.dtype)])).float()
        self._move("judge", critic_loss(*opinion.chunk(2)))

    def _move(self, name: str, loss: Tensor) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizers[name].step()


def train_enhancer(
    pictures: PublicPictures,
    out: str | Path,
    *,
    width: int = 48,
    task: Task = PLAIN_TASK,
    course: Course = PLAIN,
    on_epoch: Callable[[Progress], None] | None = None,
) -> Figures:
    """Train, store at `out`, and compare held-out pictures spoiled and enhanced. Goes on if it was interrupted."""
    architecture = {"channels": pictures.train.shape[1], "width": width}
    with weights_from(Seed(course.seed).at(KIND).number()):
        network, judge = UNet(**architecture), PatchDiscriminator(channels=architecture["channels"])
    for one in (network, judge):
        one.to(course.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    resume = Path(f"{out}.resume")
    settings = {"noise": task.noise, "adversarial": task.adversarial}
    identity = {"kind": KIND, **architecture, **settings, **pictures.to_metadata()}
    learner = Restoration(network, judge, task, course)
    end = train(learner, pictures.train, course, resume=resume, identity=identity, on_epoch=on_epoch)
    figures = compare(network.eval(), pictures.held, task, course)
    metadata = {**pictures.to_metadata(), **settings, **course_metadata(course, end), **figures.to_metadata()}
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    store_network(out, KIND, network, architecture, metadata, record_of(pictures.train))
    resume.unlink(missing_ok=True)
    return figures


def compare(network: UNet, held: Tensor, task: Task, course: Course) -> Figures:
    """Spoiled as in training, with numbers of their own."""
    truth, stream = held.float() / 255, Seed(course.seed).at(KIND, "held-out")
    spoiled = degrade(truth, Damage.draw(len(truth), task.noise, stream), noise_bank(stream))
    better = Enhancer(network=network)(spoiled.to(course.device)).cpu()
    return figures_of(truth, before=spoiled, after=better, of="spoiled, enhanced")
