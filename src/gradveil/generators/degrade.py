"""How good pictures are spoiled, so that a network can learn the way back (ROG, Yue et al., 2023, appendix A).

Each picture is made smaller by 4 with nearest, bilinear or bicubic interpolation, gets Gaussian noise, and is enlarged
with bicubic interpolation, as the attack decodes. The paper leaves the size of the noise open. Differs: noise is added
to the small picture, where the attack has its unknowns and leaves its errors, and a little to the large one.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.seeds import Seed

Kind = Literal["nearest", "bilinear", "bicubic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FACTOR = 4
BANK = 2**22  # normal numbers to choose from
FINE = 0.25  # of the noise on the small picture, how much comes onto the large one


class Damage(NamedTuple):
    """What is drawn for each picture, on the CPU: one row each."""

    kind: Tensor  # number in `KINDS`
    sigma: Tensor
    place: Tensor  # where its noise begins in the bank, on the small and on the large picture

    @classmethod
    def draw(cls, count: int, noise: float, seed: Seed) -> Damage:
        """Standard deviations are uniform up to `noise`. What a picture draws does not depend on how many follow."""
        chances = torch.rand(count, 4, generator=seed.rng(), dtype=torch.float64)
        kind = (chances[:, 0] * len(KINDS)).long()
        return cls(kind, (noise * chances[:, 1]).float(), (chances[:, 2:] * BANK).long())

    def to(self, device: str) -> Damage:
        return Damage(*(part.to(device) for part in self))

    def at(self, here: slice) -> Damage:
        return Damage(*(part[here] for part in self))


def noise_bank(seed: Seed, device: str = "cpu") -> Tensor:
    """Normal numbers, drawn once on the CPU: drawing them for every step would keep a GPU waiting."""
    return torch.randn(BANK, generator=seed.at("noise").rng()).to(device)


def degrade(images: Tensor, damage: Damage, bank: Tensor) -> Tensor:
    """Spoiled pictures [n, c, h, w] in [0, 1], of the same size. Sides need not be multiples of 4."""
    size = images.shape[-2:]
    small = _choose(images, tuple(-(-side // FACTOR) for side in size), damage.kind)
    sigma = damage.sigma[:, None, None, None]
    small = small + sigma * _noise(bank, damage.place[:, 0], small.shape)
    large = F.interpolate(small, size, mode="bicubic", align_corners=False)
    return (large + FINE * sigma * _noise(bank, damage.place[:, 1], large.shape)).clamp(0, 1)


def shrunk(images: Tensor, size: tuple[int, ...], kind: Kind) -> Tensor:
    """Without a filter against aliasing. The nearest pixel is one in the middle: a corner would shift the picture."""
    if kind == "nearest":
        return F.interpolate(images, size, mode="nearest-exact")
    return F.interpolate(images, size, mode=kind, align_corners=False)


def _choose(images: Tensor, size: tuple[int, ...], kind: Tensor) -> Tensor:
    """All three for all, then each picture's own: cheaper than sorting a batch on a GPU."""
    made = torch.stack([shrunk(images, size, each) for each in KINDS])
    return made[kind, torch.arange(len(images), device=images.device)]


def _noise(bank: Tensor, place: Tensor, shape: torch.Size) -> Tensor:
    """From each picture's place on, around the end of the bank."""
    reach = torch.arange(shape[1:].numel(), device=bank.device)
    return bank[(place[:, None] + reach) % len(bank)].view(shape)
