"""Clients as people write them: torch, a DataLoader and Pillow. No line of gradveil is used here.

Beside each client stands what its owner would write into a capture, in the keys of the file.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from ordinary_client_networks import Cnn
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

PICTURES, SIDE = 6, 16
Constants = tuple[tuple[float, ...], tuple[float, ...]]
CONSTANTS: dict[str, Constants] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "0.5,0.5,0.5/0.5,0.5,0.5": ((0.5,) * 3, (0.5,) * 3),
    "0.3,0.4,0.35/0.3,0.2,0.25": ((0.3, 0.4, 0.35), (0.3, 0.2, 0.25)),
}
FILTERS = {"lanczos": Image.Resampling.LANCZOS, "bicubic": Image.Resampling.BICUBIC,
           "bilinear": Image.Resampling.BILINEAR, "box": Image.Resampling.BOX}  # fmt: skip


class Rule(NamedTuple):
    """An optimizer of torch, and how a capture says it."""

    make: Callable[..., torch.optim.Optimizer]
    options: Mapping[str, float | bool]
    says: Mapping[str, Any]


RULES = {
    "sgd": Rule(torch.optim.SGD, {"lr": 0.05}, {"rate": 0.05}),
    "momentum": Rule(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}, {"rate": 0.05, "momentum": 0.9}),
    "nesterov": Rule(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True},
                     {"rate": 0.05, "momentum": 0.9, "nesterov": True}),
    "sgd, decay 0.0005": Rule(torch.optim.SGD, {"lr": 0.05, "weight_decay": 5e-4},
                              {"rate": 0.05, "weight_decay": 5e-4}),
    "adam": Rule(torch.optim.Adam, {"lr": 1e-3}, {"rate": 1e-3, "optimizer": "adam"}),
    "adam, betas 0.5, 0.999": Rule(torch.optim.Adam, {"lr": 1e-3, "betas": (0.5, 0.999)},  # type: ignore[dict-item]
                                   {"rate": 1e-3, "optimizer": "adam", "beta1": 0.5}),
    "adamw": Rule(torch.optim.AdamW, {"lr": 1e-3}, {"rate": 1e-3, "optimizer": "adamw", "weight_decay": 0.01}),
    "rmsprop": Rule(torch.optim.RMSprop, {"lr": 1e-3}, {"rate": 1e-3, "optimizer": "rmsprop"}),
    "adagrad": Rule(torch.optim.Adagrad, {"lr": 1e-2}, {"rate": 1e-2, "optimizer": "adagrad"}),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Client:
    """One round of a training loop."""

    net: Callable[[], nn.Module] = Cnn
    rule: str = "sgd"
    size: int = PICTURES  # of a minibatch
    epochs: int = 1
    shuffles: bool = False
    trains: bool = True  # model.train(), or model.eval() as for fine-tuning with frozen statistics
    resize: str = "bilinear"
    crop: str = "none"  # none: the whole picture is squeezed; resize-first: the short side, then the center
    constants: str = ""  # with which the transform normalizes; nothing: pixels from 0 to 1
    augments: bool = False
    smoothing: float = 0.0
    weights: tuple[float, ...] = ()  # of the classes
    clips: float = 0.0
    cosine: bool = False
    precision: torch.dtype = torch.float32  # of what is sent
    shares: bool = False  # sends its running statistics too
    seed: int = field(default=1, repr=False)

    def run(self, root: Path) -> tuple[nn.Module, dict[str, Tensor], dict[str, Tensor]]:
        """The model as sent, the difference of weights, and the running statistics that came along."""
        torch.manual_seed(0)
        model = self.net()
        client = copy.deepcopy(model).train(self.trains)
        torch.manual_seed(self.seed)
        train(client, Pictures(root, self), self)
        after = client.state_dict()
        own = {name for name, _ in model.named_parameters()}
        sent = {name: (w - after[name]).to(self.precision) for name, w in model.state_dict().items() if name in own}
        buffers = {name: after[name] for name in after if name not in own} if self.shares else {}
        return model, sent, buffers


class Pictures(Dataset[tuple[Tensor, int]]):
    """A folder a class, and a transform."""

    def __init__(self, root: Path, client: Client) -> None:
        classes = sorted(place.name for place in root.iterdir())
        files = sorted(root.glob("*/*.png"), key=lambda file: (file.name, file.parent.name))
        self.files, self.client = files[:PICTURES], client
        self.labels = [classes.index(file.parent.name) for file in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        pixels = torch.from_numpy(np.array(self.fit(Image.open(self.files[place])))).permute(2, 0, 1) / 255
        if self.client.augments:
            pixels = crop_and_flip(pixels)
        if self.client.constants:
            mean, std = (torch.tensor(part).view(-1, 1, 1) for part in CONSTANTS[self.client.constants])
            pixels = (pixels - mean) / std
        return pixels, self.labels[place]

    def fit(self, picture: Image.Image) -> Image.Image:
        resample = FILTERS[self.client.resize]
        if self.client.crop == "none":
            return picture.resize((SIDE, SIDE), resample)
        width, height = picture.size
        short = min(width, height)
        picture = picture.resize((round(width * SIDE / short), round(height * SIDE / short)), resample)
        left, upper = (picture.width - SIDE) // 2, (picture.height - SIDE) // 2
        return picture.crop((left, upper, left + SIDE, upper + SIDE))


def crop_and_flip(pixels: Tensor) -> Tensor:
    """`RandomCrop(16, padding=4)` and `RandomHorizontalFlip()`."""
    top, left = torch.randint(9, (2,)).tolist()
    pixels = F.pad(pixels, (4, 4, 4, 4))[:, top : top + SIDE, left : left + SIDE]
    return pixels.flip(-1) if torch.rand(()) < 0.5 else pixels


def train(model: nn.Module, pictures: Pictures, client: Client) -> None:
    rule = RULES[client.rule]
    optimizer = rule.make(model.parameters(), **rule.options)
    loader = DataLoader(pictures, client.size, shuffle=client.shuffles)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, client.epochs * len(loader))
    weights = torch.tensor(client.weights) if client.weights else None
    criterion = nn.CrossEntropyLoss(weights, label_smoothing=client.smoothing)
    for _ in range(client.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            if client.clips:
                nn.utils.clip_grad_norm_(model.parameters(), client.clips)
            optimizer.step()
            if client.cosine:
                schedule.step()
