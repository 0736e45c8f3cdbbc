"""More small models as people write them: windows, groups, gates, parametrizations, loops over time."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

CLASSES, SIDE, WIDTH = 5, 8, 16


class Head(nn.Module):
    """A body of convolutions, the mean over places, one linear layer."""

    def __init__(self, *layers: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.features, self.fc = nn.Sequential(*layers), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class SwinBlock(nn.Module):
    """Attention within shifted windows, with a table of relative positions and a mask."""

    def __init__(self, window: int = 2, heads: int = 2, shift: int = 1) -> None:
        super().__init__()
        self.window, self.heads, self.shift = window, heads, shift
        self.norm, self.qkv, self.proj = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.table = nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", apart[..., 0] * (2 * window - 1) + apart[..., 1])

    def windows(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        w = self.window
        x = x.view(batch, height // w, w, width // w, w, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        w, tokens = self.window, self.window**2
        shifted = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        qkv = self.qkv(self.windows(shifted)).reshape(-1, tokens, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = (q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.get_buffer("index").view(-1)].view(tokens, tokens, -1).permute(2, 0, 1)
        out = (F.softmax(scores + bias.unsqueeze(0), -1) @ v).transpose(1, 2).reshape(-1, tokens, channels)
        out = self.proj(out).view(batch, height // w, width // w, w, w, channels)
        out = out.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)
        return x + torch.roll(out, (self.shift, self.shift), (1, 2))


class Swin(nn.Module):
    """Patches, windows, patch merging by strided slices."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block = nn.Conv2d(3, WIDTH, 2, stride=2), SwinBlock()
        self.merge, self.norm = nn.Linear(4 * WIDTH, 2 * WIDTH, bias=False), nn.LayerNorm(2 * WIDTH)
        self.head = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.embed(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1)
        return self.head(self.norm(self.merge(x)).mean((1, 2)))


class EinsumAttention(nn.Module):
    """Linear layers without biases, einsum, a layer scale: as in the short vision transformers that people copy."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(WIDTH)
        self.to_qkv, self.to_out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        split = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in self.to_qkv(self.norm(x)).chunk(3, -1))
        q, k, v = split
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * (width // self.heads) ** -0.5
        out = torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)
        return x + self.scale * self.to_out(out.transpose(1, 2).reshape(batch, tokens, width))


class CosineAttention(nn.Module):
    """Normalized queries and keys with a learned temperature, RMS norm, a gated linear unit."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.proj = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.temperature, self.gated = nn.Parameter(torch.ones(1)), nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = torch.bmm(F.normalize(q, dim=-1), F.normalize(k, dim=-1).transpose(1, 2)) * self.temperature.exp()
        x = x + self.proj(torch.bmm(scores.softmax(2), v))
        return x + F.glu(self.gated(x), -1)


class Patches(nn.Module):
    """Rearranged by view and permute; the tokens go through the blocks; the mean goes to the head."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, WIDTH))
        self.blocks, self.head = nn.Sequential(*blocks), nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        x = x.view(batch, 3, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(batch, 4, 48)
        return self.head(self.blocks(self.embed(x)).mean(dim=1))


class CompactTransformer(nn.Module):
    """Convolutions make the tokens, torch's encoder (sequence first), and learned weights pool them."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.Conv2d(3, WIDTH, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 32, activation="gelu", norm_first=True)
        self.pool, self.fc = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(self.tokens(x).flatten(2).permute(2, 0, 1)).transpose(0, 1)
        weights = F.softmax(self.pool(x), dim=1)
        return self.fc(torch.matmul(weights.transpose(-1, -2), x).squeeze(-2))


class Perceiver(nn.Module):
    """Learned queries look at all places of the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.queries = nn.Conv2d(3, WIDTH, 3, 2, 1), nn.Parameter(0.1 * torch.randn(3, 1, WIDTH))
        self.cross, self.norm = nn.MultiheadAttention(WIDTH, 2), nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(3 * WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        memory = self.stem(x).flatten(2).permute(2, 0, 1)
        queries = self.queries.repeat(1, x.size(0), 1)
        seen, _ = self.cross(queries, memory, memory)
        return self.fc(self.norm(queries + seen).transpose(0, 1).flatten(1))


class NonLocal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Conv2d(WIDTH, 8, 1) for _ in range(3))
        self.out = nn.Conv2d(8, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        theta, phi, g = (layer(x).flatten(2) for layer in (self.theta, self.phi, self.g))
        attention = torch.softmax(torch.bmm(theta.transpose(1, 2), phi), dim=-1)
        return x + self.out(torch.bmm(g, attention.transpose(1, 2)).view(x.size(0), 8, *x.shape[2:]))


class ShuffleUnit(nn.Module):
    """Split, depthwise branch, channel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        half = WIDTH // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        out = torch.cat((left, self.branch(right)), dim=1)
        batch, channels, height, width = out.size()
        out = out.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous()
        return out.view(batch, -1, height, width)


class Inception(nn.Module):
    """Four branches side by side, and local response normalization as in GoogLeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.one = nn.LocalResponseNorm(5), nn.Conv2d(WIDTH, 4, 1)
        self.three = nn.Sequential(nn.Conv2d(WIDTH, 4, 1), nn.ReLU(True), nn.Conv2d(4, 4, (1, 3), padding=(0, 1)))
        self.five = nn.Sequential(nn.Conv2d(WIDTH, 2, 1), nn.ReLU(True), nn.Conv2d(2, 4, 5, padding=2))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), nn.Conv2d(WIDTH, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return F.relu(torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1))


class Fire(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.one, self.three = nn.Conv2d(WIDTH, 4, 1), nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


class DepthSpace(nn.Module):
    """Sub-pixel convolution, PReLU, and its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.up = nn.Conv2d(3, WIDTH, 5, 2, 2), nn.PReLU(WIDTH), nn.PixelShuffle(2)
        self.down, self.last = nn.PixelUnshuffle(2), nn.Conv2d(WIDTH, WIDTH, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.down(torch.tanh(self.up(self.act(self.first(x))))))


class GatedConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1), nn.Mish()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(F.glu(self.conv(x), dim=1))


class Pyramid(nn.Module):
    """Dilated convolutions at three rates and a picture-wide branch, as in DeepLab."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = nn.ModuleList([nn.Conv2d(WIDTH, 8, 3, padding=r, dilation=r, bias=False) for r in (1, 2, 3)])
        self.wide = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(WIDTH, 8, 1), nn.LeakyReLU(0.1))
        self.out = nn.Sequential(nn.Conv2d(32, WIDTH, 1), nn.GroupNorm(4, WIDTH), nn.ELU())

    def forward(self, x: Tensor) -> Tensor:
        seen = [layer(x) for layer in self.rates]
        seen.append(F.interpolate(self.wide(x), size=x.shape[-2:], mode="bilinear", align_corners=False))
        return self.out(torch.cat(seen, dim=1))


class BlurPool(nn.Module):
    """A fixed kernel as a buffer, padded by reflection."""

    def __init__(self) -> None:
        super().__init__()
        line = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("kernel", (line[:, None] * line / 16).repeat(WIDTH, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.get_buffer("kernel")
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), kernel, stride=2, groups=x.shape[1])


class StochasticDepth(nn.Module):
    """A residual branch that training leaves out at random, as timm writes it."""

    def __init__(self, branch: nn.Module, p: float = 0.2) -> None:
        super().__init__()
        self.branch, self.p = branch, p

    def forward(self, x: Tensor) -> Tensor:
        out = self.branch(x)
        if self.p and self.training:
            keep = 1 - self.p
            out = out.div(keep) * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(keep)
        return x + out


class CoordinateGates(nn.Module):
    """Coordinates as channels, a highway gate, and one layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = nn.Conv2d(5, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.gate = nn.Conv2d(WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        line = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype, device=x.device)
        grid = torch.stack(torch.meshgrid(line, line, indexing="ij")).expand(x.shape[0], -1, -1, -1)
        x = F.softplus(self.first(torch.cat([x, grid], 1)))
        for _ in range(2):
            open_ = torch.sigmoid(self.gate(x))
            x = open_ * F.selu(self.shared(x)) + (1 - open_) * x
        return x


class Recurrent(nn.Module):
    """Patches through a cell, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.fc = nn.GRUCell(48, 12), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x, 4, stride=4).permute(2, 0, 1)
        state = x.new_zeros(x.shape[0], 12)
        for patch in patches:
            state = self.cell(patch, state)
        return self.fc(state)


class BothWays(nn.Module):
    """Two layers over the rows in both directions, with dropout between them; the last states count."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.fc = nn.LSTM(3 * SIDE, 8, 2, batch_first=True, dropout=0.1, bidirectional=True), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        _, (state, _) = self.rnn(x.permute(0, 2, 1, 3).flatten(2))
        return self.fc(torch.cat([state[-2], state[-1]], dim=1))


def stem(stride: int = 2) -> nn.Module:
    return nn.Conv2d(3, WIDTH, 3, stride, 1)


def normed() -> nn.Module:
    """Weight normalization, and an orthogonal matrix, both by parametrizations."""
    conv = parametrizations.weight_norm(nn.Conv2d(3, WIDTH, 3, 2, 1))
    return Head(conv, nn.ReLU(), parametrizations.orthogonal(nn.Conv2d(WIDTH, WIDTH, 1)), nn.SiLU())


def spectral() -> nn.Module:
    conv = parametrizations.spectral_norm(nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
    return Head(stem(), nn.LeakyReLU(0.2, inplace=True), conv, nn.LeakyReLU(0.2, inplace=True))


def autoencoder() -> nn.Module:
    down = nn.Conv2d(3, WIDTH, 4, 2, 1), nn.InstanceNorm2d(WIDTH), nn.ReLU(True)
    up = nn.ConvTranspose2d(WIDTH, 8, 4, 2, 1, groups=2), nn.Softsign(), nn.Conv2d(8, WIDTH, 3, dilation=2)
    return Head(*down, *up)


def alexnet() -> nn.Module:
    features = nn.Conv2d(3, WIDTH, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2)
    classifier = nn.Dropout(), nn.Linear(4 * WIDTH, 24), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(24, CLASSES)
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), *classifier)


def deep_perceptron() -> nn.Module:
    hidden = [nn.Linear(48, 24), nn.BatchNorm1d(24), nn.GELU("tanh"), nn.Dropout(0.1), nn.Linear(24, 24), nn.SELU()]
    return nn.Sequential(nn.AdaptiveMaxPool2d(4), nn.Flatten(), *hidden, nn.AlphaDropout(0.1), nn.Linear(24, CLASSES))


def wide_resnet() -> nn.Module:
    branch = nn.Sequential(nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.Dropout2d(0.1))
    return Head(stem(), StochasticDepth(branch), BlurPool())


MORE: dict[str, Callable[[], nn.Module]] = {
    "Swin windows": Swin,
    "einsum attention, layer scale": lambda: Patches(EinsumAttention()),
    "cosine attention, RMS norm, GLU": lambda: Patches(CosineAttention()),
    "compact transformer, sequence first": CompactTransformer,
    "cross attention, learned queries": Perceiver,
    "non-local block": lambda: Head(stem(), NonLocal()),
    "ShuffleNet": lambda: Head(stem(), ShuffleUnit(), nn.ReLU6()),
    "Inception, local response norm": lambda: Head(stem(), Inception()),
    "SqueezeNet": lambda: Head(stem(), Fire(), nn.MaxPool2d(3, 2, ceil_mode=True)),
    "pixel shuffle, PReLU": lambda: Head(DepthSpace()),
    "gated convolution, Mish": lambda: Head(stem(), GatedConv()),
    "dilated pyramid": lambda: Head(stem(), Pyramid()),
    "stochastic depth, blur pool": wide_resnet,
    "coordinates, highway, shared layer": lambda: Head(CoordinateGates()),
    "GRU cell in a loop": Recurrent,
    "LSTM, both ways, two layers": BothWays,
    "weight norm, orthogonal": normed,
    "spectral norm": spectral,
    "transposed convolutions": autoencoder,
    "AlexNet": alexnet,
    "deep perceptron, SELU": deep_perceptron,
}
