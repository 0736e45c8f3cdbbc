"""Training an autoencoder: the mean squared error of its reconstructions, then codes scaled to unit size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.generators.autoencoder import KIND, Autoencoder
from gradveil.generators.degrade import FACTOR
from gradveil.generators.pictures import PublicPictures
from gradveil.generators.provenance import record_of
from gradveil.generators.quality import Figures, figures_of
from gradveil.generators.stored import store_network
from gradveil.generators.training import Course, Progress, course_metadata, train
from gradveil.models.start import weights_from

PLAIN = Course()
AT_ONCE = 64
MEASURED = 2048  # pictures whose codes are measured


class Reconstruction:
    """Pictures to codes and back."""

    def __init__(self, network: Autoencoder, course: Course) -> None:
        self.network, self.course = network, course
        optimizer = course.optimizer(network)
        self.networks, self.optimizers = {"network": network}, {"network": optimizer}

    def begin(self, pictures: int, seed: Seed) -> None:
        return None

    def learn(self, images: Tensor, here: slice) -> Tensor:
        optimizer = self.optimizers["network"]
        with self.course.autocast():
            got = self.network.decode(self.network.encode(images))
        loss = F.mse_loss(got.float(), images)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()


def train_autoencoder(
    pictures: PublicPictures,
    out: str | Path,
    *,
    latent: int = 2048,
    width: int = 64,
    course: Course = PLAIN,
    on_epoch: Callable[[Progress], None] | None = None,
) -> Figures:
    """Train, store at `out`, and say how well pictures that were held out are reconstructed. Goes on if interrupted."""
    channels, size, _ = pictures.train.shape[1:]
    architecture = {"latent": latent, "size": size, "channels": channels, "width": width}
    with weights_from(Seed(course.seed).at(KIND).number()):
        network = Autoencoder(**architecture)
    network.to(course.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    resume = Path(f"{out}.resume")
    identity = {"kind": KIND, **architecture, **pictures.to_metadata()}
    learner = Reconstruction(network, course)
    end = train(learner, pictures.train, course, resume=resume, identity=identity, on_epoch=on_epoch)
    measure_codes(network.eval(), pictures.train[:MEASURED])
    figures = judge(network, pictures.held)
    metadata = {**pictures.to_metadata(), **course_metadata(course, end), **figures.to_metadata()}
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    store_network(out, KIND, network, architecture, metadata, record_of(pictures.train))
    resume.unlink(missing_ok=True)
    return figures


@torch.no_grad()
def measure_codes(network: Autoencoder, pictures: Tensor) -> None:
    """Scale codes to mean 0 and standard deviation 1 in every channel; what is decoded does not change."""
    where = network.code_mean.device
    codes = torch.cat([network.encode(part.to(where).float() / 255) for part in pictures.split(AT_ONCE)])
    std, mean = torch.std_mean(codes.double(), dim=(0, 2, 3), correction=0)
    network.code_mean.copy_(mean.view(-1, 1, 1))
    network.code_std.copy_(std.clamp_min(1e-6).view(-1, 1, 1))


@torch.no_grad()
def judge(network: Autoencoder, held: Tensor) -> Figures:
    """Beside bicubic interpolation by 4, the code that ROG's attack takes by default."""
    where = network.code_mean.device
    truth = held.float() / 255
    got = [network.decode(network.encode(part.to(where))).cpu() for part in truth.split(AT_ONCE)]
    size = truth.shape[-1]
    small = F.interpolate(truth, max(size // FACTOR, 1), mode="bicubic", align_corners=False)
    plain = F.interpolate(small, size, mode="bicubic", align_corners=False).clamp(0, 1)
    return figures_of(truth, before=plain, after=torch.cat(got), of="bicubic by 4, autoencoder")
