"""The model that a capture was made with, holding the weights that were sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil.capture.format import Capture, Normalization
from gradveil.capture.layout import nearest, short
from gradveil.core.client import parameters_of
from gradveil.core.errors import ConfigError, unknown
from gradveil.defenses import DEFENSES, find_defense
from gradveil.models import MODELS, load_model
from gradveil.models.start import weights_from

OWN = (":", ".py")


def model_of(capture: Capture, spec: str = "", where: str | Path = "capture") -> nn.Module:
    """`spec` is what the user names; a capture itself can name a model of the catalogue and nothing else."""
    if not spec and capture.model not in MODELS:
        if not capture.model:
            raise ConfigError(
                f"{where}: model: the capture does not name one, set `model` to a name or to file.py:factory"
            )
        raise unknown("model", capture.model[:100], MODELS, f"{where}: model")
    model = as_sent(bare_model(spec or capture.model, capture, capture.normalization), capture.weights)
    _check_names(model.state_dict(), capture.weights, where)
    _check_parameters(model, capture, where)
    model.load_state_dict(dict(capture.weights), strict=True)
    return model.eval()


def as_sent(model: nn.Module, sent: Mapping[str, Tensor]) -> nn.Module:
    """As a defense changed it, where the weights show that one did, whatever the capture says."""
    found = find_defense({name: tuple(tensor.shape) for name, tensor in sent.items()})
    return model if found is None else DEFENSES[found.name](**found.options).model(model)


def bare_model(spec: str, capture: Capture, normalization: Normalization | None) -> nn.Module:
    """Of the right size and with these constants; its weights mean nothing yet."""
    if any(mark in spec for mark in OWN):
        model = load_model(spec, classes=capture.classes, shape=capture.shape)
        with torch.no_grad(), weights_from(0):
            model.eval()(torch.zeros(1, *capture.shape))  # lazy layers get their shapes
        return model
    if spec not in MODELS:
        raise unknown("model", spec, MODELS)
    constants: dict[str, Any] = {} if normalization is None else dict(zip(("mean", "std"), normalization, strict=True))
    return MODELS[spec](classes=capture.classes, shape=capture.shape, seed=0, **constants)


def _check_names(own: Mapping[str, Tensor], sent: Mapping[str, Tensor], where: str | Path) -> None:
    for name, tensor in sent.items():
        if name not in own:
            if name.startswith("normalize."):
                problem = "the weights hold constants and the capture says null, add them"
                raise ConfigError(f"{where}: normalization: {problem}")
            raise ConfigError(
                f"{where}: weights/{name}: the model has no such layer, {nearest(name, own_shape(tensor), own)}"
            )
        if tensor.shape != own[name].shape:
            problem = f"{short(tensor.shape)}, the model has {short(own[name].shape)}"
            raise ConfigError(f"{where}: weights/{name}: has the shape {problem}, give the model it was made with")
    for name, tensor in own.items():
        if name not in sent:
            if name.startswith("normalize."):
                raise ConfigError(f"{where}: normalization: the weights hold no such constants, set it to null")
            problem = nearest(name, own_shape(tensor), {n: t for n, t in sent.items() if n not in own})
            raise ConfigError(f"{where}: weights/{name}: is missing, {problem}")


def own_shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _check_parameters(model: nn.Module, capture: Capture, where: str | Path) -> None:
    """An update speaks of every parameter that is trained, and of no buffer."""
    client, update = next(iter(capture.updates.items()))
    trained = parameters_of(model)
    if missing := [name for name in trained if name not in update]:
        raise ConfigError(f"{where}: updates/{client}/{missing[0]}: is missing, save every trained parameter")
    if strange := [name for name in update if name not in trained]:
        problem = "is a buffer and no trained parameter, put it under statistics/"
        raise ConfigError(f"{where}: updates/{client}/{strange[0]}: {problem}")
