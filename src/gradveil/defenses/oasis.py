"""OASIS (Jeter et al., 2024): every picture is fed together with transformed copies of itself (equation 7).

A neuron of a malicious first layer that a picture and its copies reach alike remembers their mixture and none of them
alone (proposition 1). Whether they reach it alike is up to the server that chose the neuron: see `rtf` and `unmix`.
The update is the mean over the enlarged batch. A picture's copies follow it, in the order of `transforms`; the paper
gives no order, and the sum does not depend on it. Combined transforms add their copies; none is applied to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.knowledge import Knowledge
from gradveil.core.paper import Paper
from gradveil.core.preset import Preset
from gradveil.core.strength import Strength
from gradveil.core.types import Batch, Update
from gradveil.defenses._copies import TRANSFORMS, Interpolation

PAPER = Paper(
    "OASIS: Offsetting Active Reconstruction Attacks in Federated Learning", "Jeter et al.", 2024, "arXiv:2311.13739"
)

MORE_COPIES = ("hflip", "major", "major+shear", "major+minor+shear", "major+minor+shear+hflip+vflip")


@dataclass(frozen=True, kw_only=True)
class Oasis(Defense):
    """Feeds each picture with transformed copies: major, minor, shear, hflip or vflip, such as "major+shear".

    Major turns by 90, 180 and 270 degrees (square pictures only), minor by 30, 45 and 60, shear slides by 0.55, 1.0
    and 0.9. `interpolation` is for those that do not move whole pixels.
    """

    strength: ClassVar[Strength | None] = Strength("transforms", MORE_COPIES)

    transforms: str | tuple[str, ...] = ("major",)
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        names = self.transforms
        if isinstance(names, str):
            names = () if names == "none" else tuple(names.split("+"))
        for name in names:
            if name not in TRANSFORMS:
                raise unknown("transform", name, TRANSFORMS, where="oasis")
        if len(set(names)) < len(names):
            raise ConfigError(f"oasis: transforms = {'+'.join(names)} names one twice, name each once")
        if self.interpolation not in ("bilinear", "nearest"):
            raise ConfigError(f"oasis: interpolation = {self.interpolation!r} is not known, take bilinear or nearest")
        object.__setattr__(self, "transforms", names)

    @property
    def copies(self) -> int:
        return 1 + sum(len(TRANSFORMS[name]) for name in self.transforms)

    def of_each(self, pictures: Tensor) -> Tensor:
        """Pictures and their copies, [picture, copy, channel, height, width]; the first copy is the picture itself."""
        made = [copy(pictures, self.interpolation) for name in self.transforms for copy in TRANSFORMS[name]]
        return torch.stack([pictures, *made], 1)

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        labels = batch.labels.unsqueeze(1).expand(-1, self.copies, *batch.labels.shape[1:])
        return Batch(self.of_each(batch.images).flatten(0, 1), labels.flatten(0, 1))

    def knowledge(self) -> Knowledge:
        return Knowledge(copies=self.copies, transforms=tuple(self.transforms))

    def surrogate(self, seen: Update) -> Oasis:
        """It draws nothing, so an informed attacker enlarges its own pictures and looks for the private ones alone."""
        return self


PRESETS = {
    "oasis-mr": Preset(
        Oasis,
        "OASIS by quarter turns, the paper's choice against RTF.",
        fixed=("transforms", "interpolation"),
        transforms=("major",),
    ),
    "oasis-mr+sh": Preset(
        Oasis,
        "OASIS by quarter turns and shears, the paper's choice against CAH.",
        fixed=("transforms",),
        transforms=("major", "shear"),
    ),
    "oasis-hf": Preset(
        Oasis,
        "OASIS by a horizontal flip, the weakest of the paper.",
        fixed=("transforms", "interpolation"),
        transforms=("hflip",),
    ),
}
