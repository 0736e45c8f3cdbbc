"""Data sets by name. Every loader returns a `Dataset`; none of them downloads anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from gradveil.core.errors import ConfigError, unknown
from gradveil.data.base import Dataset
from gradveil.data.cifar import cifar10, cifar100
from gradveil.data.digits import digits
from gradveil.data.fashion_mnist import fashion_mnist
from gradveil.data.image_folder import image_folder
from gradveil.data.image_zip import image_zip, imagenet
from gradveil.data.npz import npz
from gradveil.data.photos import photos
from gradveil.data.utkface import utkface

DATASETS: dict[str, Callable[..., Dataset]] = {
    "photos": photos,
    "digits": digits,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "fashion-mnist": fashion_mnist,
    "imagenet": imagenet,
    "utkface": utkface,
    "image-folder": image_folder,
    "image-zip": image_zip,
    "npz": npz,
}


def load(spec: str, **options: object) -> Dataset:
    """A data set by its name in the table, or by path: a folder of class folders, a zip of pictures, or an .npz file.

    >>> load("photos", limit=2).class_names[:2]
    ('astronaut', 'cat')
    """
    name = loader_of(spec)
    place = {} if name == spec else {"path" if name == "npz" else "root": Path(spec)}
    return _call(name, {**place, **options})


def loader_of(spec: str) -> str:
    """The row of the table that loads a name or a path.

    >>> loader_of("pictures.zip")
    'image-zip'
    """
    path = Path(spec)
    if spec in DATASETS:
        return spec
    if path.is_dir():
        return "image-folder"
    if path.suffix in (".zip", ".npz"):
        return {".zip": "image-zip", ".npz": "npz"}[path.suffix]
    if len(path.parts) > 1 or path.exists():
        known = ", ".join(DATASETS)
        raise ConfigError(f"{spec}: no such folder, .zip or .npz file, give one of these or a name: {known}")
    raise unknown("data", spec, DATASETS)


def _call(name: str, options: dict[str, object]) -> Dataset:
    parameters = inspect.signature(DATASETS[name]).parameters
    for option in options:
        if option not in parameters:
            raise unknown("option", option, parameters, where=f"data {name}")
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in options:
            raise ConfigError(f"data {name}: {option} is missing, give {option}=")
    return DATASETS[name](**options)


__all__ = ["DATASETS", "Dataset", "load", "loader_of"]
