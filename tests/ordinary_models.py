"""Small models as people write them: plain torch, nothing of gradveil, whatever layers their papers use."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from ordinary_networks import CLASSES, MORE, SIDE, WIDTH
from torch import Tensor, nn


class FunctionalAttention(nn.Module):
    """Queries, keys and values from one layer, as in timm."""

    def __init__(self, width: int = WIDTH, heads: int = 2, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(x.transpose(1, 2).reshape(batch, tokens, width))


class MultiheadAttention(nn.Module):
    """torch's own layer, with or without the weights that it can return, and with a mask."""

    def __init__(self, weights: bool = False, masked: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=dropout, batch_first=True)
        self.weights, self.masked = weights, masked

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.masked else None
        return self.attention(x, x, x, need_weights=self.weights, attn_mask=mask)[0]


class Block(nn.Module):
    def __init__(self, attention: nn.Module, norm_first: bool = True) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), attention, nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, WIDTH))
        self.norm_first = norm_first

    def forward(self, x: Tensor) -> Tensor:
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class Transformer(nn.Module):
    """Patches, positions, perhaps a class token, blocks, head."""

    def __init__(self, *blocks: nn.Module, token: bool = True, unfold: bool = False) -> None:
        super().__init__()
        self.unfold = unfold
        self.to_patches = nn.Linear(48, WIDTH) if unfold else nn.Conv2d(3, WIDTH, 4, stride=4)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, WIDTH)) if token else None
        self.where = nn.Parameter(0.02 * torch.randn(1, 4 + int(token), WIDTH))
        self.blocks, self.norm, self.head = nn.Sequential(*blocks), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if self.unfold:
            x = self.to_patches(F.unfold(x, 4, stride=4).transpose(1, 2))
        else:
            x = self.to_patches(x).flatten(2).transpose(1, 2)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.norm(self.blocks(x + self.where))
        return self.head(x[:, 0] if self.cls is not None else x.mean(1))


class Encoder(nn.Module):
    """`nn.TransformerEncoder` with its defaults, dropout among them."""

    def __init__(self, norm_first: bool = False, masked: bool = False, padded: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.masked, self.padded = masked, padded

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1]) if self.masked else None
        padding = None
        if self.padded:
            padding = torch.zeros(x.shape[:2], dtype=torch.bool)
            padding[:, -1] = True
        return self.encoder(x, mask=mask.to(x) if mask is not None else None, src_key_padding_mask=padding)


class Residual(nn.Module):
    """A branch that is added; `inplace` as torchvision does."""

    def __init__(self, *branch: nn.Module, inplace: bool = False) -> None:
        super().__init__()
        self.branch, self.inplace = nn.Sequential(*branch), inplace

    def forward(self, x: Tensor) -> Tensor:
        out = self.branch(x)
        if self.inplace:
            out += x
            return F.relu(out, inplace=True)
        return out + x


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, inner: int, gate: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.pool, self.down, self.up = nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)
        self.gate, self.act = gate, act

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.up(self.act(self.down(self.pool(x)))))


class ConvNeXtBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.act, self.down = nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH)
        self.gamma = nn.Parameter(0.1 * torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.gamma * self.down(self.act(self.up(out)))).permute(0, 3, 1, 2)


class DenseLayer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, 8, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x), inplace=True))], 1)


class UNet(nn.Module):
    """Down and up again with a skip, then a head."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = convolved(3, 8), convolved(8, 16)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), convolved(16, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down1(x)
        deep = self.up(self.down2(F.max_pool2d(skip, 2)))
        deep = F.interpolate(deep, size=skip.shape[2:], mode="bilinear", align_corners=False)
        return self.head(self.out(torch.cat([skip, deep], 1)).mean((2, 3)))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.tokens = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
        self.norm2 = nn.LayerNorm(WIDTH)
        self.channels = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Rows(nn.Module):
    """A picture as a sequence of its rows."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU] = nn.LSTM) -> None:
        super().__init__()
        self.rnn, self.fc = kind(3 * SIDE, 12, batch_first=True), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.rnn(x.permute(0, 2, 1, 3).flatten(2))[0][:, -1])


def convolved(channels: int, out: int, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), norm(out), nn.ReLU(inplace=True))


def network(*layers: nn.Module, width: int = WIDTH) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def inverted(act: type[nn.Module], gate: type[nn.Module]) -> nn.Module:
    """The bottleneck of EfficientNet and MobileNetV3."""
    wide = 24
    branch = (
        nn.Conv2d(WIDTH, wide, 1, bias=False), nn.BatchNorm2d(wide), act(),
        nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), act(),
        SqueezeExcite(wide, 4, gate(), act()), nn.Conv2d(wide, WIDTH, 1, bias=False), nn.BatchNorm2d(WIDTH),
    )  # fmt: skip
    stem = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1, bias=False)
    return network(stem, nn.BatchNorm2d(WIDTH), act(), Residual(*branch), nn.Dropout(0.2))


def regnet() -> nn.Module:
    branch = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=4, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True)
    excite = SqueezeExcite(WIDTH, 4, nn.Sigmoid(), nn.ReLU())
    return network(convolved(3, WIDTH), Residual(*branch, excite, nn.Conv2d(WIDTH, WIDTH, 1)), nn.ReLU(inplace=True))


def resnet() -> nn.Module:
    branch = (*convolved(WIDTH, WIDTH), nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH))
    return network(convolved(3, WIDTH), nn.MaxPool2d(2), Residual(*branch, inplace=True))


def mixer() -> nn.Module:
    return Transformer(Mixer(), token=False)


ORDINARY: dict[str, Callable[[], nn.Module]] = {
    "function, class token": lambda: Transformer(Block(FunctionalAttention())),
    "function, post-norm, causal": lambda: Transformer(
        Block(FunctionalAttention(causal=True), norm_first=False), token=False
    ),
    "function, unfold": lambda: Transformer(Block(FunctionalAttention()), token=False, unfold=True),
    "layer, class token": lambda: Transformer(Block(MultiheadAttention(dropout=0.1))),
    "layer, mean of tokens, mask": lambda: Transformer(Block(MultiheadAttention(masked=True)), token=False),
    "layer, post-norm, weights": lambda: Transformer(Block(MultiheadAttention(weights=True), norm_first=False)),
    "encoder, class token": lambda: Transformer(Encoder()),
    "encoder, pre-norm, mean of tokens": lambda: Transformer(Encoder(norm_first=True), token=False),
    "encoder, mask": lambda: Transformer(Encoder(masked=True), token=False),
    "encoder, padding": lambda: Transformer(Encoder(padded=True)),
    "ConvNeXt": lambda: network(nn.Conv2d(3, WIDTH, 2, stride=2), ConvNeXtBlock()),
    "EfficientNet": lambda: inverted(nn.SiLU, nn.Sigmoid),
    "MobileNetV3": lambda: inverted(nn.Hardswish, nn.Hardsigmoid),
    "RegNet": regnet,
    "DenseNet": lambda: network(nn.Conv2d(3, 8, 3, padding=1), DenseLayer(8), DenseLayer(16), width=24),
    "U-Net": UNet,
    "MLP-Mixer": mixer,
    "LSTM": Rows,
    "GRU": lambda: Rows(nn.GRU),
    "GroupNorm": lambda: network(convolved(3, WIDTH, lambda width: nn.GroupNorm(4, width))),
    "InstanceNorm": lambda: network(convolved(3, WIDTH, lambda width: nn.InstanceNorm2d(width, affine=True))),
    "in-place residual": resnet,
    **MORE,
}


def ordinary(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return copy.deepcopy(ORDINARY[name]())
