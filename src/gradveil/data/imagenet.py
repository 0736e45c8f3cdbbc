"""Pictures of ImageNet (Russakovsky et al., IJCV 2015), from a zip or a folder with a labels.csv.

The set itself is not distributed as such: pack the pictures that you have with a table of `file` and `name`.
ATS (Gao et al., CVPR 2021) takes 25 classes at 224 pixels.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gradveil.data.base import Dataset
from gradveil.data.image_zip import image_zip

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what its models customarily use


def imagenet(
    *,
    root: str | Path,
    label: str = "name",
    size: int | None = None,
    classes: int | None = None,
    split: str = "test",
    limit: int | None = None,
) -> Dataset:
    """ImageNet pictures in a zip or folder with labels.csv (columns file and name); `classes` takes the first ones."""
    data = image_zip(root=root, label=label, size=size, classes=classes, split=split, limit=limit)
    return replace(data, name="imagenet", mean=MEAN, std=STD)
