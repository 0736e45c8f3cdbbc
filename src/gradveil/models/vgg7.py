"""VGG-7 and LeNet-5 as ROG (Yue et al., 2023) attacks them: ReLU, no normalization, two linear layers.

Widths are those of its code: 128, 256 and 512 twice each and a linear layer of 1024; 32 and 64 and one of 512; the
convolutions keep the size of the picture. LeNet-5 starts with torch's own weights, as there. Differs: VGG-7 has biases
in its linear layers, and starts with weights that keep the size of the signal: torch's own leave the logits of six
layers without normalization nearly alike for all pictures.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from gradveil.models.start import Shape, check_size, normalization, weights_from

STAGES = ((128, 128), (256, 256), (512, 512))
HIDDEN = 1024


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
    return plain("vgg7", STAGES, 3, HIDDEN, True, True, classes, shape, seed, mean, std)


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
