"""Masks of the user's own: beside every picture one file of the same name whose gray values or palette are classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.data.base import check_amount
from gradveil.data.fit import Fit
from gradveil.data.picture_files import read_stored

SUFFIXES = (".png", ".tif", ".tiff", ".webp")  # none that loses values
MOST = 64  # classes: more gray values are a picture
BANDS = ("1", "L", "P")


def load_masks(
    folder: Path, pictures: Sequence[Path], fit: Fit, size: tuple[int, int]
) -> tuple[Tensor, tuple[str, ...]]:
    """One-hot per pixel, [n, class, height, width], and the gray values that are the classes, in rising order.

    fit: what is done to the pictures; masks are cropped alike and resized to the nearest value.
    """
    near = replace(fit, resize="nearest")
    found = np.stack([read_mask(mask_of(folder, path), near, size) for path in pictures])
    values = np.unique(found)
    if len(values) > MOST:
        raise ConfigError(f"{folder}: {len(values)} gray values, more than {MOST} classes; give masks, not pictures")
    check_amount(folder, (len(values), *found.shape))
    classes = torch.from_numpy(np.searchsorted(values, found))
    return F.one_hot(classes, len(values)).movedim(-1, 1).float(), tuple(map(str, values.tolist()))


def check_folder(masks: str | None) -> None:
    if masks and not Path(masks).is_dir():
        raise ConfigError(f"{masks}: no such folder, give the folder of the masks", key="masks")


def mask_of(folder: Path, picture: Path) -> Path:
    """The one file with the picture's name, whatever its format."""
    found = [
        folder / f"{picture.stem}{suffix}" for suffix in SUFFIXES if (folder / f"{picture.stem}{suffix}").is_file()
    ]
    if len(found) != 1:
        what = f"{len(found)} masks" if found else "no mask"
        raise ConfigError(f"{folder}: {what} for {picture.name}, give one {picture.stem}.png")
    if not found[0].resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"{found[0]}: a link that leads out of {folder}, copy the mask into the folder instead")
    return found[0]


def read_mask(path: Path, fit: Fit, size: tuple[int, int]) -> np.ndarray:
    """Its values, [row, column]."""
    image = read_stored(path, path)
    if image.mode not in BANDS:
        raise ConfigError(f"{path}: is a {image.mode} picture, save masks as gray or palette pictures of 8 bits")
    values = np.asarray(fit(image, path)).astype(np.uint8)
    if values.shape != size:
        raise ConfigError(f"{path}: {values.shape[1]}x{values.shape[0]} pixels, its picture has {size[1]}x{size[0]}")
    return values
