"""ROG's enhancement (Yue et al., 2023): a network that was trained to undo what low resolution and noise do."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gradveil.generators.stored import load_network
from gradveil.generators.unet import UNet

KIND = "enhancer"
AT_ONCE = 64  # pictures; each is normalized by itself, so that the number does not matter


@dataclass(frozen=True, kw_only=True)
class Enhancer:
    """Pictures [*lead, c, h, w] in [0, 1] to better ones, on their device and in their precision."""

    network: UNet

    @property
    def file(self) -> str:
        return self.network.file

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        network = copy.deepcopy(self.network).to(images.device)
        parts = images.reshape(-1, *images.shape[-3:]).float().split(AT_ONCE)
        better = torch.cat([network(part) for part in parts]).clamp(0, 1)
        return better.reshape(images.shape).to(images.dtype)

    def __repr__(self) -> str:
        return f"Enhancer(file={self.file!r})"


def load_enhancer(path: str | Path) -> Enhancer:
    """From the file that `gradveil train-generator enhancer` wrote."""
    return Enhancer(network=load_network(path, KIND, UNet))
