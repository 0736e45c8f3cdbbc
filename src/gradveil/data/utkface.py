"""UTKFace (Zhang, Song and Qi, CVPR 2017): aligned faces, with age, gender and group in their file names.

In place of CelebA, on whose 40 attributes ATS (Gao et al., CVPR 2021) trains at 112 pixels. The attributes here are ten
independent yes-or-no questions, so that a picture has several labels at once and the loss is binary cross-entropy:
female; at least 15, 30, 45, 60 years; and the five groups that the names distinguish, one of which holds.

Nobody has fixed a split. A hash of a picture's name puts a fifth of them into the test split and orders them: the names
begin with the age, so that in their own order the first pictures would all show people of one age. Research use only.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.data.archive import open_files
from gradveil.data.base import Dataset, check_positive, check_split, statistics
from gradveil.data.fit import Crop, Fit, Resize
from gradveil.data.image_zip import pictures_of, source
from gradveil.data.picture_files import Reading, stack_pictures

NAME = re.compile(r"(\d{1,3})_([01])_([0-4])_\d+(\.jpg)?(\.chip)?\.(jpg|jpeg|png|webp)", re.ASCII)
AGES = (15, 30, 45, 60)
GROUPS = ("white", "black", "asian", "indian", "other group")
ATTRIBUTES = ("female", *(f"{age} or older" for age in AGES), *GROUPS)
PAGE = "https://susanqq.github.io/UTKFace/"
TEST_SHARE = 5  # one in so many


def utkface(
    *,
    root: str | Path,
    size: int = 112,
    split: str = "test",
    limit: int | None = None,
    resize: Resize = "lanczos",
    crop: Crop = "center",
) -> Dataset:
    """UTKFace: faces with ten yes-or-no attributes (age, gender, group), in a zip or folder under their own names."""
    check_split("utkface", split)
    check_positive("utkface", size=size, limit=limit)
    with open_files(Path(root)) as files:
        places = {name: _place(name) for name in pictures_of(files)}
        targets = {name: _attributes(name, files.where) for name in places}
        wanted = [name for name, place in places.items() if (place % TEST_SHARE == 0) == (split == "test")]
        chosen = sorted(wanted, key=lambda name: (places[name], name))[:limit]
        if not chosen:
            raise ConfigError(f"{root}: no face for the {split} split among {len(places)}, add more")
        how = Reading(Fit(size=size, resize=resize, crop=crop))
        images = stack_pictures([source(files, name) for name in chosen], how, "utkface")
    mean, std = statistics(images)
    return Dataset(
        name="utkface",
        images=images,
        targets=torch.stack([targets[name] for name in chosen]),
        class_names=ATTRIBUTES,
        mean=mean,
        std=std,
        loss="binary-cross-entropy",
    )


def _place(name: str) -> int:
    return int.from_bytes(blake2b(PurePosixPath(name).name.encode(), digest_size=8).digest(), "big")


def _attributes(name: str, where: Path) -> Tensor:
    found = NAME.fullmatch(PurePosixPath(name).name)
    if found is None:
        raise ConfigError(
            f"{where}: {name}: not a name like age_gender_group_date.jpg (see {PAGE}), rename or remove the picture"
        )
    age, gender, group = (int(found[place]) for place in (1, 2, 3))
    return torch.tensor([gender, *(age >= least for least in AGES), *(group == k for k in range(len(GROUPS)))]).float()
