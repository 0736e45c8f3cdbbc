"""Small tasks beyond one label a picture: masks, numbers, soft and several labels, each with a model and a loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scenes import drawn
from torch import Tensor, nn

from gradveil.core.local_training import Loss
from gradveil.core.own_loss import OwnLoss, as_own_loss
from gradveil.core.target import TargetKind
from gradveil.models.start import weights_from

SIDE, CLASSES = 8, 3
FILE = """
import torch
import torch.nn.functional as F
from torch import nn


class UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.near, self.down = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 2, stride=2)
        self.up, self.head = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, classes, 1)

    def forward(self, x):
        near = self.near(x).sigmoid()
        return self.head(torch.cat([near, self.up(self.down(near).sigmoid())], 1))


class Flat(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.head = nn.Linear(192, 24), nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.body(x.flatten(1)).sigmoid())


def unet(classes, shape):
    return UNet(classes)


def flat(classes, shape):
    return Flat(classes)


def dice_ce(outputs, targets):
    shares = outputs.softmax(1)
    both, size = (shares * targets).sum((2, 3)), (shares + targets).sum((2, 3))
    return F.cross_entropy(outputs, targets) + 1 - ((2 * both + 1) / (size + 1)).mean()


def mse(outputs, targets):
    return F.mse_loss(outputs, targets)


def focal(outputs, targets):
    chance = outputs.softmax(1)
    return -(targets * (1 - chance) ** 2 * chance.clamp_min(1e-6).log()).sum(1).mean()


def looks_inside(outputs, targets):
    loss = F.mse_loss(outputs, targets)
    return loss * (2 if loss.item() > 1e9 else 1)


def vector(outputs, targets):
    return F.mse_loss(outputs, targets, reduction="none")


def nan(outputs, targets):
    return outputs.sum() * float("nan")


def detaches(outputs, targets):
    return F.mse_loss(outputs.detach(), targets)


def zero(outputs, targets):
    return 0 * outputs.sum()


def raises(outputs, targets):
    raise ValueError("on two\\nlines")


def leaves(outputs, targets):
    raise SystemExit(0)


def number(outputs, targets):
    return 1.0


class Squares(nn.Module):
    def forward(self, outputs, targets):
        return (outputs - targets).square().mean()


text = "no loss"
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Labels as an .npz holds them, and what they become."""

    labels: np.ndarray
    model: str
    loss: str  # in `FILE`; empty: the usual one
    kind: TargetKind
    shape: tuple[int, ...]


def numbers(*shape: int, seed: int) -> np.ndarray:
    return drawn(*shape, seed=seed).numpy()


def masks(count: int) -> np.ndarray:
    """Thirds of the picture's brightness."""
    gray = pictures(count).mean(1)
    return np.stack([np.digitize(one, np.quantile(one, [1 / 3, 2 / 3])) for one in gray])


def pictures(count: int) -> np.ndarray:
    """Smooth ones, [n, channel, height, width] in [0, 1]."""
    coarse = drawn(count, 3, 4, 4, seed=11).float()
    return F.interpolate(coarse, (SIDE, SIDE), mode="bilinear").numpy()


def soft(count: int) -> np.ndarray:
    """As mixup makes them."""
    share = numbers(count, 1, seed=5)
    one, other = np.eye(CLASSES)[np.arange(count) % 3], np.eye(CLASSES)[(np.arange(count) + 1) % 3]
    return (share * one + (1 - share) * other).astype(np.float32)


def tasks(count: int = 60) -> dict[str, Task]:
    several = (numbers(count, 4, seed=6) > 0.5).astype(np.uint8)
    several[:, 0] = 1
    dense = (CLASSES, SIDE, SIDE)
    return {
        "masks": Task(labels=masks(count), model="unet", loss="dice_ce", kind="classes", shape=dense),
        "masks, usual loss": Task(labels=masks(count), model="unet", loss="", kind="classes", shape=dense),
        "numbers": Task(labels=4 * numbers(count, 2, seed=7) - 1, model="flat", loss="mse", kind="numbers", shape=(2,)),
        "soft labels": Task(labels=soft(count), model="flat", loss="", kind="classes", shape=(CLASSES,)),
        "soft labels, own loss": Task(labels=soft(count), model="flat", loss="focal", kind="classes", shape=(CLASSES,)),
        "several labels": Task(labels=several, model="flat", loss="", kind="several", shape=(4,)),
    }


def write_task(folder: Path, task: Task) -> list[str]:
    """The options of an audit of it."""
    (folder / "net.py").write_text(FILE)
    np.savez(folder / "data.npz", images=pictures(len(task.labels)), labels=task.labels)
    loss = ["--loss", f"{folder}/net.py:{task.loss}"] if task.loss else []
    return ["--model", f"{folder}/net.py:{task.model}", "--data", f"{folder}/data.npz", *loss]


def namespace() -> dict[str, object]:
    """What the file defines."""
    found: dict[str, object] = {}
    exec(FILE, found)
    return found


def small_unet(classes: int = CLASSES) -> nn.Module:
    with weights_from(0):
        return namespace()["UNet"](classes).double()  # type: ignore[operator]


def loss_called(name: str) -> OwnLoss | Loss:
    return as_own_loss(namespace()[name])  # type: ignore[arg-type]


def one_hot_masks(*leading: int, seed: int = 0) -> Tensor:
    """[*leading, class, height, width]"""
    at = (CLASSES * drawn(*leading, SIDE, SIDE, seed=seed)).long()
    return F.one_hot(at, CLASSES).movedim(-1, -3).to(torch.float64)
