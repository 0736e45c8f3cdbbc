"""Models of ordinary clients, in plain torch. Factories without arguments, as people write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 8


class Cnn(nn.Module):
    """As LeNet, with batch normalization."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 5, padding=2), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 16, 5, padding=2), nn.BatchNorm2d(16)
        self.fc1, self.drop, self.fc2 = nn.Linear(256, 32), nn.Dropout(drop), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc2(self.drop(F.relu(self.fc1(x.flatten(1)))))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.block1, self.block2 = Block(8, 16, 2), Block(16, 16, 2)
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block2(self.block1(F.relu(self.bn(self.stem(x)))))
        return self.fc(x.mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.norm1, self.norm2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), drop
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = self.down(F.gelu(self.up(self.norm2(x))))
        return x + F.dropout(y, self.drop, self.training)


class Vit(nn.Module):
    def __init__(self, drop: float = 0.0, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token, self.place = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.randn(1, 17, width) / 50)
        self.layers = nn.Sequential(Layer(width, drop), Layer(width, drop))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        return self.head(self.norm(self.layers(x))[:, 0])


class Mlp(nn.Module):
    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(3 * 16 * 16, 32), nn.Linear(32, 32), nn.Linear(32, CLASSES)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(F.relu(self.fc1(x.flatten(1))))
        return self.fc3(self.drop(F.relu(self.fc2(x))))


class NormalizingCnn(Cnn):
    """Its own first layer normalizes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x - self.get_buffer("mean")) / self.get_buffer("std"))


def cnn_with_dropout() -> nn.Module:
    return Cnn(drop=0.5)


def vit_with_dropout() -> nn.Module:
    return Vit(drop=0.1)


def mlp_with_dropout() -> nn.Module:
    return Mlp(drop=0.3)
