"""Models and references as the command line names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from gradveil.config.build import try_model
from gradveil.config.normalization import AUTO, normalize_as
from gradveil.core.errors import ConfigError, unknown
from gradveil.data import Dataset
from gradveil.models import MODELS, load_model, load_weights
from gradveil.models.header import read_header
from gradveil.models.start import Shape
from gradveil.models.user import is_user_model

NORMALIZED = "normalize.mean"  # the name of a named model's constants in a file of weights
SUFFIX = ".safetensors"


def shape_from(text: str) -> Shape:
    """`3x32x32` or `1x28x20`: channels, height, width."""
    found = re.fullmatch(r"(\d{1,4})x(\d{1,5})x(\d{1,5})", text)
    if not found or not all(map(int, found.groups())):
        raise ConfigError(f"must be channels x height x width as in 3x32x32, got {text!r}", key="shape")
    channels, height, width = map(int, found.groups())
    return channels, height, width


def model_from(
    spec: str, weights: str | None, dataset: Dataset | None, classes: int, shape: Shape, normalize: str = AUTO
) -> nn.Module:
    """A name of the table or `file.py:factory`, made for the data where there is some, with its weights."""
    if dataset is not None:
        classes, shape = dataset.targets.shape[1], dataset.shape
    if is_user_model(spec):
        model = load_model(spec, classes=classes, shape=shape)
        if dataset is not None:
            try_model(model, dataset, spec)
    elif spec not in MODELS:
        raise unknown("model", spec, MODELS, "MODEL")
    else:
        constants = _constants(weights, dataset, shape[0]) if normalize == AUTO else {}
        model = MODELS[spec](classes=classes, shape=shape, **constants)
    normalize_as(model, normalize, shape[0])
    if weights:
        load_weights(model, Path(weights))
    return model


def _constants(weights: str | None, dataset: Dataset | None, channels: int) -> dict[str, tuple[float, ...]]:
    """Those of the data; without data any, if the file brings its own."""
    if dataset is not None:
        return {"mean": dataset.mean, "std": dataset.std}
    path = Path(weights or "")
    brings = path.suffix.lower() != SUFFIX or not path.is_file() or NORMALIZED in read_header(path, path)
    return {"mean": (0.0,) * channels, "std": (1.0,) * channels} if brings else {}


def reference_from(
    spec: str, weights: str | None, dataset: Dataset | None, classes: int, shape: Shape, normalize: str = AUTO
) -> nn.Module | Mapping[str, Tensor]:
    """A model, or the tensors of an earlier checkpoint, whichever they are."""
    if Path(spec).suffix.lower() == SUFFIX:
        return tensors_of(Path(spec))
    return model_from(spec, weights, dataset, classes, shape, normalize)


def tensors_of(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, give the path of a .safetensors file")
    names = read_header(path, path)
    try:
        with safe_open(path, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file ({error}), save it again") from error
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ConfigError(f"{path}: {name}: not all numbers are finite, take another checkpoint")
    return tensors
