"""Training a conditional GAN to a file: generator and critic of one size, samples beside the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.core.hashes import own_version
from gradveil.core.seeds import Seed
from gradveil.generators.conditional import FIRST, ConditionalGan
from gradveil.generators.conditional_training import Reached, train_gan
from gradveil.generators.critic import Critic
from gradveil.generators.gan_course import GanCourse
from gradveil.generators.gan_step import Duel
from gradveil.generators.labeled_pictures import Labeled
from gradveil.generators.provenance import record_of
from gradveil.generators.stored import store_network
from gradveil.models.start import weights_from
from gradveil.transforms.picture import picture_grid

KIND = "conditional-gan"
CLASSES_SHOWN, EACH = 12, 12
WIDEST = 4096


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Channels of the two networks at full size."""

    generator: int = 256
    critic: int = 128

    def __post_init__(self) -> None:
        if not 2 <= self.generator <= WIDEST:
            raise ConfigError(f"must be 2 to {WIDEST}, got {self.generator}", key="width")
        if not 1 <= self.critic <= WIDEST:
            raise ConfigError(f"must be 1 to {WIDEST}, got {self.critic}", key="critic_width")

    def architecture(self, pictures: Labeled) -> dict[str, int]:
        channels, side = pictures.images.shape[1:3]
        blocks = (side // FIRST).bit_length() - 1
        shape = {"classes": pictures.labels.shape[1], "channels": channels}
        return {**shape, "width": self.generator, "blocks": blocks, "full": blocks, "noise": 128, "embedding": 128}


PLAIN, PLAIN_WIDTHS = GanCourse(), Widths()


def train_conditional_gan(
    pictures: Labeled,
    out: str | Path,
    *,
    widths: Widths = PLAIN_WIDTHS,
    course: GanCourse = PLAIN,
    on_block: Callable[[Reached], None] | None = None,
) -> Reached:
    """Train, store the averaged generator at `out`, with samples in a .png beside. Goes on if it was interrupted.

    pictures: see `labeled_pictures`, which leaves out what looks like the pictures to be attacked.
    on_block: called after every block of steps with how far the training is.
    """
    architecture, resume = widths.architecture(pictures), Path(f"{out}.resume")
    with weights_from(Seed(course.seed).at(KIND).number()):
        generator = ConditionalGan(**architecture)
        critic = Critic(classes=architecture["classes"], size=generator.size, width=widths.critic)
    duel = Duel(generator, critic, pictures.images, pictures.labels, course)
    identity = {"kind": KIND, **architecture, "critic_width": widths.critic, **pictures.to_metadata()}
    reached = train_gan(duel, resume=resume, identity=identity, on_block=on_block)
    average = duel.settled()
    effort = {"steps": reached.step, "seconds_spent": f"{reached.seconds:.1f}"}
    versions = {"version": own_version(), "torch": torch.__version__}
    metadata = {**pictures.to_metadata(), **course.settings(), "steps_planned": course.steps, **effort, **versions}
    store_network(out, KIND, average, architecture, metadata, record_of(pictures.images))
    write_whole(Path(out).with_suffix(".png"), picture_grid(samples(average, course.seed), EACH))
    resume.unlink(missing_ok=True)
    return reached


@torch.no_grad()
def samples(generator: ConditionalGan, seed: int) -> torch.Tensor:
    """Classes from first to last, a row each."""
    places = torch.linspace(0, generator.classes - 1, min(CLASSES_SHOWN, generator.classes)).round().long()
    labels = torch.eye(generator.classes)[places].repeat_interleave(EACH, 0)
    noise = torch.randn(len(labels), generator.noise, generator=Seed(seed).at("samples").rng())
    return generator(torch.cat([noise, generator.embed(labels)], 1))
