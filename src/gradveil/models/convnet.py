"""ConvNet of Inverting Gradients (Geiping et al., NeurIPS 2020) and ATS (Gao et al., CVPR 2021), by its width.

Eight convolutions, not nine: the authors' code defines the sixth twice under one name. The "8-layer" and "32-layer"
ConvNets of ATS are almost certainly widths 8 and 32.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from torch import nn

from gradveil.models.start import Shape, check_size, normalization, weights_from

MULTIPLES = (1, 2, 2, 4, 4, 4, 4, 4)  # channels of each convolution, in widths
POOLED_AFTER = {6: 1, 8: 2}  # convolution -> pool that follows it


def convnet(
    *,
    width: int,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """ConvNet of a given width: eight 3x3 convolutions with batch normalization, two poolings, one linear layer."""
    check_size(f"convnet{width}", shape, classes, smallest=9)
    channels, height, breadth = shape
    layers = normalization(f"convnet{width}", channels, mean, std)
    with weights_from(seed):
        for place, multiple in enumerate(MULTIPLES, start=1):
            layers |= _convolution(place, channels, multiple * width)
            channels = multiple * width
        features = channels * (height // 9) * (breadth // 9)
        layers |= {"flatten": nn.Flatten(), "fc": nn.Linear(features, classes)}
    return nn.Sequential(OrderedDict(layers))


def _convolution(place: int, entering: int, leaving: int) -> dict[str, nn.Module]:
    layers: dict[str, nn.Module] = {
        f"conv{place}": nn.Conv2d(entering, leaving, kernel_size=3, padding=1),
        f"norm{place}": nn.BatchNorm2d(leaving),
        f"act{place}": nn.ReLU(),
    }
    if place in POOLED_AFTER:
        layers[f"pool{POOLED_AFTER[place]}"] = nn.MaxPool2d(3)
    return layers


def of_width(width: int, summary: str) -> Callable[..., nn.Module]:
    """The factory of one width, with a summary of its own."""
    factory = partial(convnet, width=width)
    factory.__doc__ = summary
    return factory
