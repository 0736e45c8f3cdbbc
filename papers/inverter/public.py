"""Who is who among CIFAR-10's pictures: victims, the gallery they hide in, and what the attacker has."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.draw import draw_rows
from gradveil.generators.provenance import resembling, thumbnails

SIDE, COLUMNS = 32, 20  # of a picture, and pictures in a row of a mosaic


@dataclass(frozen=True, kw_only=True)
class CifarSplit:
    """Victims in [0, 1] with one-hot labels, the gallery in [0, 1], public pictures in 8 bits by pool."""

    victims: Batch
    gallery: Tensor
    public: dict[str, Batch]
    blank: Tensor
    class_means: Tensor  # of each victim's class
    left_out: int  # public pictures that look like a victim

    def take(self, count: int) -> CifarSplit:
        """With the first victims alone."""
        return replace(self, victims=Batch(*(x[:count] for x in self.victims)), class_means=self.class_means[:count])


def split_cifar(root: Path, victims: int, gallery: int, pool: int, device: str) -> CifarSplit:
    train, test = (read_cifar(root, part) for part in ("train", "test"))
    rows = draw_rows(len(test.images), Seed(0), "seed")
    hidden, others, rest = rows[:victims], rows[victims : victims + gallery], rows[victims + gallery :]
    attacked = Batch(test.images[hidden], test.labels[hidden])
    public = {"train": train, "test": Batch(test.images[rest], test.labels[rest])}
    kept = {name: unlike(part, attacked.images) for name, part in public.items()}
    left_out = sum(len(part.images) for part in public.values()) - sum(len(part.images) for part in kept.values())
    kept = {name: Batch(*(x[: pool or None].to(device) for x in part)) for name, part in kept.items()}
    kept["both"] = Batch(*(torch.cat(x) for x in zip(kept["train"], kept["test"], strict=True)))
    whole = kept["both"]
    means = torch.stack([whole.images[whole.labels.argmax(1) == k].float().mean(0) for k in range(10)]) / 255
    private = Batch(*(x.to(device) for x in (attacked.images.float() / 255, attacked.labels)))
    return CifarSplit(
        victims=private, gallery=(test.images[others].float() / 255).to(device), public=kept,
        blank=whole.images.float().mean(0) / 255, class_means=means[private.labels.argmax(1)], left_out=left_out,
    )  # fmt: skip


def unlike(part: Batch, victims: Tensor) -> Batch:
    """Without pictures that look like a victim or its mirror image."""
    known = thumbnails(torch.cat([victims, victims.flip(-1)]))
    keep = ~resembling(thumbnails(part.images), known)
    return Batch(part.images[keep], part.labels[keep])


def read_cifar(root: Path, part: str) -> Batch:
    """Pictures [n, 3, 32, 32] in 8 bits and one-hot labels, in the official order."""
    with np.load(root / "cifar10_labels.npz") as file:
        labels = file[f"y_{part}"].astype(np.int64)
    images = np.zeros((len(labels), SIDE, SIDE, 3), np.uint8)
    with zipfile.ZipFile(root / ("cifar10_test.zip" if part == "test" else "cifar10_train_0.zip")) as archive:
        for name in archive.namelist():
            rows = labels == int(Path(name).name[:2])
            images[rows] = tiles(archive.read(name), int(rows.sum()))
    return Batch(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.eye(10)[torch.from_numpy(labels)])


def tiles(content: bytes, count: int) -> np.ndarray:
    """The pictures of a mosaic."""
    mosaic = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    rows = -(-count // COLUMNS)
    cut = mosaic[: rows * SIDE].reshape(rows, SIDE, COLUMNS, SIDE, 3).transpose(0, 2, 1, 3, 4)
    return cut.reshape(-1, SIDE, SIDE, 3)[:count]
