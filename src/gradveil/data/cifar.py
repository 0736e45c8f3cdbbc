"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), from the binary version of the standard distribution.

The "python version" is a set of pickles and is refused. CIFAR-100 is also read from lossless WebP mosaics
(`cifar100_*.zip`, see `mosaic.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradveil.core.errors import ConfigError
from gradveil.data.base import Dataset, check_labels, check_positive, check_split, from_bytes, one_hot
from gradveil.data.mosaic import LABELS, read_mosaics

PIXELS = 3 * 32 * 32
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
NAMES10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FINE_LABELS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm"""
NAMES100 = tuple(FINE_LABELS.split())


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """How one of the two data sets is laid out on disk."""

    name: str
    folder: str
    pickles: str  # the folder of the python version
    files: dict[str, tuple[str, ...]]
    records: int  # pictures in one file, at most
    label_bytes: int  # CIFAR-100 has the coarse label first; the last byte is the label
    class_names: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CIFAR10 = Distribution(
    name="cifar10",
    folder="cifar-10-batches-bin",
    pickles="cifar-10-batches-py",
    files={"train": tuple(f"data_batch_{k}.bin" for k in range(1, 6)), "test": ("test_batch.bin",)},
    records=10_000,
    label_bytes=1,
    class_names=NAMES10,
    mean=(0.49140, 0.48216, 0.44653),
    std=(0.24703, 0.24349, 0.26159),
)
CIFAR100 = Distribution(
    name="cifar100",
    folder="cifar-100-binary",
    pickles="cifar-100-python",
    files={"train": ("train.bin",), "test": ("test.bin",)},
    records=50_000,
    label_bytes=2,
    class_names=NAMES100,
    mean=(0.50708, 0.48655, 0.44092),
    std=(0.26733, 0.25644, 0.27615),
)


def cifar10(*, root: str | Path = "data", split: str = "test", limit: int | None = None) -> Dataset:
    """CIFAR-10, 32x32 color, 10 classes; needs the folder cifar-10-batches-bin (binary version) in `root`."""
    return _load(CIFAR10, Path(root), split, limit, len(NAMES10))


def cifar100(
    *, root: str | Path = "data", split: str = "test", limit: int | None = None, classes: int | None = None
) -> Dataset:
    """CIFAR-100, 32x32 color, 100 classes; needs the folder cifar-100-binary (binary version) in `root`.

    `classes` keeps the first so many classes.
    """
    check_positive("cifar100", classes=classes)
    known = len(NAMES100)
    return _load(CIFAR100, Path(root), split, limit, known if classes is None else min(classes, known))


def _load(kind: Distribution, root: Path, split: str, limit: int | None, classes: int) -> Dataset:
    check_split(kind.name, split)
    check_positive(kind.name, limit=limit)
    if kind is CIFAR100 and (root / LABELS).is_file():
        pictures, labels = read_mosaics(root, split, limit, classes)
    else:
        pictures, labels = _read_binary(kind, _binary_folder(kind, root), split, limit, classes)
    return Dataset(
        name=kind.name,
        images=from_bytes(pictures),
        targets=one_hot(labels, classes),
        class_names=kind.class_names[:classes],
        mean=kind.mean,
        std=kind.std,
    )


def _binary_folder(kind: Distribution, root: Path) -> Path:
    for folder in (root / kind.folder, root):
        if (folder / kind.files["test"][0]).is_file():
            return folder
    advice = f"unpack the binary version from {PAGE} so that {root / kind.folder} exists, or give root="
    if (root / kind.pickles).is_dir() or root.name == kind.pickles:
        raise ConfigError(f"{root}: holds the python version, whose pickles run code when read; {advice}")
    raise ConfigError(f"{root}: no {kind.name} here; {advice}")


def _read_binary(
    kind: Distribution, folder: Path, split: str, limit: int | None, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The files in their order, no more of them than `limit` needs."""
    tables, there = [], 0
    for name in kind.files[split]:
        if limit is None or there < limit:
            table = _read_records(kind, folder / name)
            tables.append(table[table[:, kind.label_bytes - 1] < classes])
            there += len(tables[-1])
    records = np.concatenate(tables)[:limit]
    return records[:, kind.label_bytes :].reshape(-1, 3, 32, 32), records[:, kind.label_bytes - 1]


def _read_records(kind: Distribution, path: Path) -> np.ndarray:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, unpack the binary version of {kind.name} from {PAGE} again")
    record, size = kind.label_bytes + PIXELS, path.stat().st_size
    if size == 0 or size % record or size > kind.records * record:
        raise ConfigError(
            f"{path}: {size:,} bytes are not 1 to {kind.records:,} records of {record:,} bytes, "
            f"the file is truncated or another; unpack it again from {PAGE}"
        )
    table = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    check_labels(path, table[:, kind.label_bytes - 1], len(kind.class_names))
    return table
