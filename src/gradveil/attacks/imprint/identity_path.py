"""A way for the picture to a layer deep in a model: one filter of every layer before it hands a channel on.

A server that plants may set these weights as well. Of each convolution the first filters, as many as the picture has
channels, become the identity, and what normalizes them is undone; all other filters stay. Before the first activation
the picture is lifted, so that nothing of it lies below zero. What cannot hand it on (a stride, a pooling, a sigmoid)
shows in what arrives, which `place_in` looks at.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn

from gradveil.models.normalize import constants_of


class Arrived(Exception):
    """The layer that is asked about is about to run."""


def open_path(model: nn.Module, at: str, pictures: Tensor) -> nn.Module:
    """A copy whose layers before `at` hand such pictures on, as far as they can."""
    model = copy.deepcopy(model)
    channels = pictures.shape[1]
    mean, std = constants_of(model, channels)
    lift = (mean / std).to(pictures)
    with torch.no_grad():
        for layer in layers_before(model, at, pictures):
            lift = through(layer, channels, lift)
    return model


def layers_before(model: nn.Module, at: str, pictures: Tensor) -> Iterator[nn.Conv2d | nn.BatchNorm2d]:
    """Those with weights that run before the layer, in order, each once."""
    ran: list[nn.Module] = []

    def arrived(*_: object) -> None:
        raise Arrived

    watched = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.BatchNorm2d)]
    hooks = [layer.register_forward_hook(lambda layer, *_: ran.append(layer)) for layer in watched]
    hooks.append(model.get_submodule(at).register_forward_pre_hook(arrived))
    with suppress(Arrived):
        model.eval()(pictures)
    for hook in hooks:
        hook.remove()
    yield from dict.fromkeys(ran)  # type: ignore[misc]


def through(layer: nn.Conv2d | nn.BatchNorm2d, channels: int, lift: Tensor) -> Tensor:
    """The first channels leave as they came, and lifted where the layer has a bias; what is still to be lifted."""
    if isinstance(layer, nn.Conv2d):
        if layer.groups != 1 or layer.out_channels < channels:
            return lift
        layer.weight[:channels] = 0
        nn.init.dirac_(layer.weight[:channels, :channels])
        start = torch.zeros_like(lift)
    elif layer.weight is None or layer.running_var is None or layer.running_mean is None:
        return lift
    else:
        layer.weight[:channels] = (layer.running_var[:channels] + layer.eps).sqrt()
        start = layer.running_mean[:channels]
    if layer.bias is None:
        return lift
    layer.bias[:channels] = start + lift
    return torch.zeros_like(lift)
