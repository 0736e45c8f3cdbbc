"""VGG16 (Simonyan and Zisserman, ICLR 2015) in its CIFAR form, and VGG-7 and LeNet-5 of ROG (Yue et al., 2023).

VGG16 has batch normalization, and one linear layer of 512 at the end where the paper, for pictures of 224 pixels, has
three of 4096; it is in LODA's cross-architecture table.

VGG-7 and LeNet-5 have ReLU, no normalization and two linear layers. Widths are those of ROG's code: 128, 256 and 512
twice each and a linear layer of 1024; 32 and 64 and one of 512; the convolutions keep the size of the picture. LeNet-5
starts with torch's own weights, as there. Differs: VGG-7 has biases in its linear layers, and starts with weights that
keep the size of the signal: torch's own leave the logits of six layers without normalization nearly alike for all
pictures.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from gradveil.models.start import Shape, check_size, normalization, weights_from

VGG7_STAGES = ((128, 128), (256, 256), (512, 512))
HIDDEN = 1024

VGG16_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """VGG16: thirteen 3x3 convolutions with batch normalization, five poolings, one linear layer."""
    check_size("vgg16", shape, classes, smallest=32)
    layers, entering = normalization("vgg16", shape[0], mean, std), shape[0]
    with weights_from(seed):
        for place, widths in enumerate(VGG16_STAGES, start=1):
            layers[f"stage{place}"] = _normalized_stage(entering, widths)
            entering = widths[-1]
        layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(entering, classes)}
    return nn.Sequential(OrderedDict(layers))


def _normalized_stage(entering: int, widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for leaving in widths:
        layer = nn.Conv2d(entering, leaving, kernel_size=3, padding=1)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(layer.get_parameter("bias"))
        layers += [layer, nn.BatchNorm2d(leaving), nn.ReLU()]
        entering = leaving
    return nn.Sequential(*layers, nn.MaxPool2d(2))


def vgg7(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """VGG-7: six 3x3 convolutions, three poolings, two linear layers; no normalization inside."""
    check_size("vgg7", shape, classes, smallest=8)
    return plain("vgg7", VGG7_STAGES, 3, HIDDEN, True, True, classes, shape, seed, mean, std)


def lenet5(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """LeNet-5 of ROG's code: two 5x5 convolutions with ReLU and pooling, two linear layers without biases."""
    check_size("lenet5", shape, classes, smallest=4)
    return plain("lenet5", ((32,), (64,)), 5, 512, False, False, classes, shape, seed, mean, std)


def plain(
    name: str,
    stages: Sequence[Sequence[int]],
    kernel: int,
    hidden: int,
    bias: bool,
    scaled: bool,
    classes: int,
    shape: Shape,
    seed: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> nn.Module:
    """Stages of convolutions that end in a pool each, a hidden linear layer and the last; `scaled` is He's start."""
    layers, (entering, height, width) = normalization(name, shape[0], mean, std), shape
    with weights_from(seed):
        for place, widths in enumerate(stages, start=1):
            layers[f"stage{place}"] = _stage(entering, widths, kernel, scaled)
            entering, height, width = widths[-1], height // 2, width // 2
        layers |= {"flatten": nn.Flatten(), "hidden": nn.Linear(entering * height * width, hidden, bias=bias)}
        layers |= {"act": nn.ReLU(), "fc": nn.Linear(hidden, classes, bias=bias)}
    return nn.Sequential(OrderedDict(layers))


def _stage(entering: int, widths: Sequence[int], kernel: int, scaled: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for leaving in widths:
        layer = nn.Conv2d(entering, leaving, kernel, padding=kernel // 2)
        if scaled:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        layers += [layer, nn.ReLU()]
        entering = leaving
    return nn.Sequential(*layers, nn.MaxPool2d(2))
