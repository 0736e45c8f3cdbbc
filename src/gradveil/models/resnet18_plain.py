"""ResNet18 without its normalization, as ROG (Yue et al., 2023, section 4.2) attacks it.

Convolutions start as torch starts them: with the larger weights that go with batch normalization an untrained network
of eighteen layers without it has logits in the thousands. Differs from ROG's code in the mean over all positions where
the code takes windows of 8 x 8, and in the bias of the last layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from gradveil.models.resnet18 import resnet18
from gradveil.models.start import Shape, weights_from


def resnet18_plain(
    *,
    classes: int,
    shape: Shape = (3, 32, 32),
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """ResNet18 without normalization inside: the eight residual blocks and nothing between the convolutions."""
    model = resnet18(classes=classes, shape=shape, seed=seed, mean=mean, std=std)
    norms = [name for name, layer in model.named_modules() if isinstance(layer, nn.BatchNorm2d)]
    for name in norms:
        model.set_submodule(name, nn.Identity())
    with weights_from(seed):
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.reset_parameters()
    return model
