"""The ResNet20 of He et al. for CIFAR-10, as Idelbayev has trained it: an extractor that one core can run.

Weights: `resnet20_cifar10.npz` in DATA, 91.7 % of CIFAR-10's test pictures. Its shortcuts take every other pixel and
fill channels up with zeros, so that none of them is a convolution.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.models.normalize import Normalize

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WIDTHS, BLOCKS = (16, 32, 64), 3


class Block(nn.Module):
    def __init__(self, entering: int, leaving: int) -> None:
        super().__init__()
        self.stride, self.filled = (1, 0) if entering == leaving else (2, (leaving - entering) // 2)
        self.conv1 = nn.Conv2d(entering, leaving, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(leaving)
        self.conv2 = nn.Conv2d(leaving, leaving, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(leaving)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        kept = x[:, :, :: self.stride, :: self.stride]
        return F.relu(residual + F.pad(kept, (0, 0, 0, 0, self.filled, self.filled)))


class ResNet20(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.normalize = Normalize(MEAN, STD)
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1, self.layer2, self.layer3 = map(stage, (16, 16, 32), WIDTHS)
        self.linear = nn.Linear(WIDTHS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(self.normalize(x))))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def stage(entering: int, leaving: int) -> nn.Sequential:
    return nn.Sequential(Block(entering, leaving), *(Block(leaving, leaving) for _ in range(BLOCKS - 1)))


def trained_on_cifar10(root: Path) -> ResNet20:
    model = ResNet20()
    with np.load(root / "resnet20_cifar10.npz") as file:
        state = {name.removeprefix("module."): torch.from_numpy(file[name]) for name in file.files}
    constants = {name: value for name, value in model.state_dict().items() if name.startswith("normalize.")}
    model.load_state_dict(state | constants)
    return model.eval()
