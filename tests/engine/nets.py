"""Models that a back end meets: what it must walk, and what it must hand on."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from scenes import CLASSES, MEAN, STD, settled, usual
from torch import Tensor, nn

from gradveil.models import MODELS
from gradveil.models.densenet import Dense
from gradveil.models.mobilenet_v2 import Inverted
from gradveil.models.normalize import Normalize
from gradveil.models.resnet20 import Block
from gradveil.models.start import weights_from
from gradveil.models.vit import vit

WIDE = (3, 16, 16)


def made(build: Callable[[], nn.Module]) -> nn.Module:
    with weights_from(3):
        return settled(build())


def named(name: str) -> nn.Module:
    return settled(MODELS[name](classes=CLASSES, shape=WIDE, mean=MEAN, std=STD))


def residual() -> nn.Module:
    """Strides of 2, 1x1 shortcuts, a shortcut of nothing, global pooling."""
    blocks = [Block(3, 4, 2), Block(4, 4, 1), Block(4, 6, 2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES))


def activations() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(4, 4, 1),
        nn.Tanh(),
        nn.Conv2d(4, 4, 3, stride=2, dilation=2, bias=False),
        nn.GELU(),
        nn.LocalResponseNorm(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(144, 12),
        nn.BatchNorm1d(12),
        nn.ELU(),
        nn.Linear(12, CLASSES, bias=False),
    )


def geometry() -> nn.Module:
    """Uneven kernels, strides and paddings, padding beyond the kernel's reach, overlapping pools."""
    return nn.Sequential(
        nn.Conv2d(3, 4, (3, 5), stride=(2, 1), padding=(0, 2)),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
        nn.Conv2d(4, 4, 1, padding=1),
        nn.BatchNorm2d(4, affine=False),
        nn.Sigmoid(),
        nn.AvgPool2d((2, 3), stride=1),
        nn.Conv2d(4, 3, 2, dilation=2, padding=1),
        nn.Flatten(),
        nn.LazyLinear(CLASSES),
    )


def few_rows() -> nn.Module:
    """Layers so wide for so few positions that the gradient is better never formed."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 8, stride=8),
        nn.Tanh(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, 32, 1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(inplace=True),
        nn.Linear(32, CLASSES),
    )


class Functional(nn.Module):
    """As people write them: functions, sizes, views, sums, products and joins."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 0.5]).view(3, 1, 1))
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(68, 10), nn.Linear(10, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x * self.scale)), 2)
        y = torch.sigmoid(self.conv2(x))
        x = x.mul(y) + 0.5 * x
        x += y
        whole = F.avg_pool2d(x, 4, 4).reshape(x.shape[0], -1)
        parts = torch.cat([whole, x.mean((2, 3)), x[:, :, 1:3, 2:].flatten(1)], 1)
        x = F.dropout(parts.view(parts.size(0), -1), training=self.training)
        return self.fc2(torch.tanh(self.fc1(x)).relu())


def inverted() -> nn.Module:
    """What MobileNetV2 is made of: depthwise convolutions, ReLU6, linear bottlenecks."""
    blocks = [Inverted(3, 4, 2, 2), Inverted(4, 4, 1, 3), Inverted(4, 6, 2, 1)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten(), nn.Linear(36, CLASSES))


def dense() -> nn.Module:
    """What DenseNet is made of: values put beside each other."""
    blocks = [nn.Conv2d(3, 4, 5, stride=5), Dense(4), Dense(36)]
    return nn.Sequential(*blocks, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(68, CLASSES))


class Squeezed(nn.Module):
    """Functions where others have layers: channels that are weighed by what is in them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.deep = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 8, 3, groups=8)
        self.fc1, self.fc2 = nn.Linear(8, 8), nn.Linear(8 * 9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(6 * self.deep(F.silu(self.conv(x))))
        shares = F.softmax(self.fc1(F.gelu(x.mean((2, 3)))), dim=-1)
        x = torch.cat((x * shares[:, :, None, None], x / 2), dim=2)[:, :, ::2]
        return self.fc2(F.adaptive_avg_pool2d(x, 3).permute(0, 2, 3, 1).flatten(1))


class Tokens(nn.Module):
    """A linear layer over a sequence, and attention of pixels to pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.query, self.key = nn.Conv2d(3, 6, 4, stride=4), nn.Linear(6, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        attention = torch.softmax(self.query(tokens) @ self.key(tokens).transpose(1, 2), -1)
        return self.head((attention @ tokens).mean(1))


WALKED: dict[str, Callable[[], nn.Module]] = {
    "usual": lambda: usual(WIDE),
    "lenet": lambda: named("lenet"),
    "convnet8": lambda: named("convnet8"),
    "mlp": lambda: named("mlp"),
    "residual": lambda: made(residual),
    "activations": lambda: made(activations),
    "geometry": lambda: made(lambda: sized(geometry())),
    "few rows": lambda: made(few_rows),
    "functional": lambda: made(lambda: sized(Functional())),
    "tokens": lambda: made(Tokens),
    "transformer": lambda: settled(vit(width=12, heads=2, depth=2, classes=CLASSES, shape=WIDE, mean=MEAN, std=STD)),
    "transformer with a margin": lambda: settled(vit(width=8, heads=2, depth=1, classes=CLASSES, shape=WIDE, patch=5)),
    "inverted residuals": lambda: made(inverted),
    "groups": lambda: made(Grouped),
    "group norm": lambda: made(GroupNormed),
    "layer norm": lambda: made(lambda: sized(between(nn.LayerNorm([14, 14])))),
    "dense": lambda: made(dense),
    "squeezed": lambda: made(lambda: sized(Squeezed())),
}


def sized(model: nn.Module) -> nn.Module:
    model.eval()(torch.zeros(1, *WIDE))
    return model


class Grouped(nn.Sequential):
    def __init__(self) -> None:
        grouped = nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.Conv2d(6, 4, (3, 2), 2, 1, groups=2, bias=False)
        super().__init__(*grouped, nn.Sigmoid(), nn.Flatten(), nn.Linear(4 * 56, CLASSES))


class Reflected(nn.Sequential):
    def __init__(self) -> None:
        conv = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
        super().__init__(conv, nn.ReLU(), nn.Flatten(), nn.Linear(4 * 256, CLASSES))


class GroupNormed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(784, CLASSES))


class Learned(nn.Sequential):
    """An activation with a parameter."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 3), nn.PReLU(), nn.Flatten(), nn.Linear(784, CLASSES))


class Bare(nn.Module):
    """A parameter that belongs to no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4 * 196, CLASSES)
        self.gain = nn.Parameter(torch.full((4, 1, 1), 1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.gain * self.conv(x)).flatten(1))


class Twice(nn.Module):
    """One layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 256, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        return self.fc(torch.tanh(self.again(torch.tanh(self.again(x)))).flatten(1))


class Idle(nn.Module):
    """A layer that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.idle = nn.Linear(768, CLASSES), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x.flatten(1))


HANDED_TO_VMAP: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "reflect padding": (Reflected, "padded with other than zeros"),
    "a layer without a rule": (Learned, "PReLU"),
    "a bare parameter": (Bare, "gain is used outside a layer"),
    "a layer used twice": (Twice, "again is used twice"),
}


class Branches(nn.Module):
    """Looks at the numbers to decide what to do: neither torch.fx nor vmap can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.normalize, self.fc = Normalize(MEAN, STD), nn.Linear(768, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.normalize(x)
        return self.fc(torch.tanh(x if x.mean() > 0 else 2 * x).flatten(1))


class Aside(nn.Module):
    """A second head that is computed and not returned."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc, self.aside = nn.Conv2d(3, 4, 3), nn.Linear(784, CLASSES), nn.Linear(784, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.conv(x)).flatten(1)
        self.aside(x)
        return self.fc(x)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.one, self.two = nn.Linear(768, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.two.weight = self.one.weight
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x.flatten(1)))
        return self.fc(torch.tanh(self.two(torch.tanh(self.one(x)))))


class Weighed(nn.Module):
    """A residual sum with a factor, as `torch.add` writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(784, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.conv1(x))
        return self.fc(torch.add(x, torch.tanh(self.conv2(x)), alpha=0.3).flatten(1))


class Centered(nn.Module):
    """Subtracts the mean over the client's own batch: an operation that joins examples."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(784, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.fc(torch.tanh(x - x.mean(0, keepdim=True)).flatten(1))


class Sequence(nn.Module):
    """Batch normalization of a sequence: [example, channel, position]."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, channels, 4, stride=4), nn.BatchNorm1d(channels)
        self.fc = nn.Linear(16 * channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.tanh(self.norm(self.conv(x).flatten(2))).flatten(1))


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.square()], 1)


class InPlace(nn.Module):
    """Functions that write into what they were given."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(784, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x), inplace=True)
        return self.fc(self.conv2(x).add_(x).relu_().flatten(1))


def doubled(_layer: nn.Module, _inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
    return 2 * out


class Hooked(nn.Sequential):
    """A hook that changes what a layer returns."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(784, CLASSES))
        self[0].register_forward_hook(doubled)


def between(layer: nn.Module, channels: int = 4) -> nn.Module:
    """A layer without weights between two convolutions; `channels` is how many it leaves of four."""
    first, second = nn.Conv2d(3, 4, 3), nn.Conv2d(channels, 4, 3)
    return nn.Sequential(first, layer, second, nn.Tanh(), nn.Flatten(), nn.LazyLinear(CLASSES))


def frozen() -> nn.Module:
    """The first layers are not trained: fine-tuning."""
    model = usual(WIDE)
    for name in ("conv1", "norm1"):
        model.get_submodule(name).requires_grad_(False)
    return model


UNUSUAL: dict[str, Callable[[], nn.Module]] = {
    "layer norm": lambda: made(lambda: sized(between(nn.LayerNorm([4, 14, 14], elementwise_affine=False)))),
    "instance norm": lambda: made(lambda: sized(between(nn.InstanceNorm2d(4)))),
    "gated linear unit": lambda: made(lambda: sized(between(nn.Sequential(nn.GLU(1), Doubled())))),
    "an idle layer": lambda: made(Idle),
    "a head aside": lambda: made(Aside),
    "tied weights": lambda: made(Tied),
    "a weighed sum": lambda: made(Weighed),
    "centered by the batch": lambda: made(Centered),
    "norm of a sequence": lambda: made(Sequence),
    "norm of a square sequence": lambda: made(lambda: Sequence(16)),
    "in place": lambda: made(InPlace),
    "a hook": lambda: made(Hooked),
    "frozen layers": frozen,
}
