"""LODA as its authors ran it in small: it keeps the features of the ResNet20 that CIFAR-10 was learned with.

Encodings start at test pictures that stand in no line-up, and are made once: whoever asks again reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from resnet20 import trained_on_cifar10
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.data import load
from gradveil.data.draw import draw_rows
from gradveil.defenses.loda.extractor import fingerprint
from gradveil.defenses.loda.features import Features
from gradveil.defenses.loda.loda import PRESETS, Loda
from gradveil.defenses.loda.obscure import Scale, obscure
from gradveil.defenses.loda.starts import start_of
from gradveil.lineup.candidates import Gallery, near_copies
from gradveil.models.start import Shape

STARTS = 512  # the last of the drawn rows: victims and candidates are the first
SHAPE = (3, 32, 32)


@dataclass(frozen=True, kw_only=True)
class Obscured(Loda):
    """Loda, with an extractor and with starts from the folder `root`."""

    root: str

    def check(self, model: nn.Module) -> None:
        """The extractor is there."""

    def features(self, like: Tensor) -> Features:
        return Features(trained_on_cifar10(Path(self.root)).to(like.device, like.dtype), self.layers, SHAPE)

    def encoder(self, like: Tensor) -> Callable[[Tensor, list[str]], Tensor]:
        """The extractor is read once something is missing: a line-up asks for thousands that are known."""

        def encode(pictures: Tensor, hashes: list[str]) -> Tensor:
            features, pool = self.features(like), starts_in(self.root)
            scale = Scale.of(self.units, features.model, like)
            starts = torch.stack([start_of(pool, hashed, self.starts, self.seed) for hashed in hashes])
            return obscure(pictures.to(like.dtype), starts.to(like), features, self.recipe, scale)

        return encode

    def key(self, shape: Shape) -> str:
        return fingerprint("obscured", self.layers, self.recipe, self.units, self.starts, self.seed)


@lru_cache
def starts_in(root: str) -> Tensor:
    images = load(str(Path(root) / "cifar10_test.npz")).images
    starts = images[draw_rows(len(images), Seed(0), "seed")[-STARTS:]]
    if not starts.flatten(1).any(1).all():
        raise ConfigError("cifar10_test.npz: pictures that encodings start at are black, give the whole test set")
    return starts


def obscured(preset: str, root: Path, steps: int) -> Obscured:
    return Obscured(root=str(root), steps=steps, **PRESETS[preset].defaults)


def encode_beforehand(defense: Obscured, victims: Tensor, gallery: Gallery) -> None:
    """All that is shown: victims, candidates, and near copies of both."""
    pictures = torch.cat([victims, gallery.images])
    defense.encode(torch.cat([pictures, *(near_copies(one) for one in pictures)]))
