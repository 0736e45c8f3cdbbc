"""Vision transformer (Dosovitskiy et al., ICLR 2021) in the two smaller sizes of DeiT (Touvron et al., ICML 2021).

ATS (Gao et al., CVPR 2021, table 8) attacks ViT-Base of 86 million parameters, trained on ImageNet. Differs: smaller,
and from scratch. Attention is written with plain products: the fused kernels have no second derivative.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.models.start import Shape, check_size, normalization, weights_from

DEPTH = 12
SPREAD = 0.02  # of all weights at the start, as in DeiT
NAMES = {192: "vit-tiny", 384: "vit-small"}  # by width


def vit(
    *,
    width: int,
    heads: int,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    patch: int | None = None,
    depth: int = DEPTH,
) -> nn.Module:
    """A transformer over patches of 4 pixels, 8 from 64 pixels on and 16 from 112 on, unless `patch` says otherwise."""
    name = NAMES.get(width, f"vit of width {width}")
    check_size(name, shape, classes, smallest=4)
    patch = patch_of(shape) if patch is None else patch
    if not 1 <= patch <= min(shape[1:]):
        raise ConfigError(f"{name}: patches of {patch} pixels do not fit {shape[1]}x{shape[2]}, take smaller ones")
    layers = normalization(name, shape[0], mean, std)
    with weights_from(seed):
        layers |= {"embed": Embed(shape, patch, width)}
        layers |= {"blocks": nn.Sequential(*(Block(width, heads) for _ in range(depth)))}
        layers |= {"norm": nn.LayerNorm(width, eps=1e-6), "first": First(), "fc": nn.Linear(width, classes)}
        for layer in nn.ModuleDict(layers).modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=SPREAD)
                nn.init.zeros_(layer.bias)
    return nn.Sequential(OrderedDict(layers))


def patch_of(shape: Shape) -> int:
    small = min(shape[1:])
    return 4 if small < 64 else 8 if small < 112 else 16


class Embed(nn.Module):
    """Patches as tokens, a token for the class before them, and where each of them is."""

    def __init__(self, shape: Shape, patch: int, width: int) -> None:
        super().__init__()
        channels, *sides = shape
        margins = [-side % patch for side in sides]  # a last patch may reach beyond the picture, over zeros
        self.patches = nn.Conv2d(channels, width, patch, patch, [-(-margin // 2) for margin in margins])  # type: ignore[arg-type]
        count = ((sides[0] + margins[0]) // patch) * ((sides[1] + margins[1]) // patch)
        self.token = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1, width), std=SPREAD))
        self.places = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1 + count, width), std=SPREAD))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(tokens.shape[0], -1, -1), tokens], 1) + self.places


class Attention(nn.Module):
    """What each token takes from the others."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self.by_head(part(x)) for part in (self.query, self.key, self.value))
        shares = torch.softmax(torch.matmul(query * self.scale, key.transpose(2, 3)), -1)
        return self.out(torch.matmul(shares, value).transpose(1, 2).flatten(2))

    def by_head(self, x: Tensor) -> Tensor:
        """[example, head, token, feature]"""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Block(nn.Module):
    """Attention, then a perceptron of each token alone; normalization before both."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class First(nn.Module):
    """The token of the class."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def of_width(width: int, heads: int, summary: str) -> Callable[..., nn.Module]:
    """The factory of one width, with a summary of its own."""
    factory = partial(vit, width=width, heads=heads)
    factory.__doc__ = summary
    return factory
