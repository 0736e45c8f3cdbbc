"""Who stands in the line-up: the pictures of the gallery, the true one among them, and near copies of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from gradveil.core.hashes import sha256
from gradveil.core.types import Batch

QUALITY = 75  # of the JPEG
BRIGHTER = 1.05
Copy = Literal["jpeg", "resized", "brighter"]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The candidates beside the true picture. labels [candidate, class]; None: nobody knows them."""

    images: Tensor
    labels: Tensor | None = None

    def of_class(self, label: Tensor) -> list[int]:
        """Rows whose label is this one's; none where labels are not known."""
        if self.labels is None:
            return []
        return (self.labels.argmax(-1).cpu() == label.argmax().cpu()).nonzero().flatten().tolist()

    def take(self, part: slice, label: Tensor, own_labels: bool) -> Batch:
        """Some of them, with their own labels or all with this one."""
        images = self.images[part]
        if own_labels and self.labels is not None:
            return Batch(images, self.labels[part].to(label))
        return with_label(images, label)


def with_label(images: Tensor, label: Tensor) -> Batch:
    """Pictures that all carry one label."""
    return Batch(images, label.expand(len(images), *label.shape))


def as_jpeg(picture: Tensor) -> Tensor:
    """The picture [channel, height, width] after JPEG at quality 75; channels one by one unless there are 1 or 3."""
    if picture.shape[0] not in (1, 3):
        return torch.cat([as_jpeg(channel.unsqueeze(0)) for channel in picture])
    levels = (255 * picture.float().cpu().clamp(0, 1)).round().to(torch.uint8)
    image = Image.fromarray(levels[0].numpy() if len(levels) == 1 else levels.permute(1, 2, 0).numpy())
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=QUALITY)
    decoded = torch.from_numpy(np.array(Image.open(buffer))).float() / 255
    return (decoded.unsqueeze(0) if decoded.dim() == 2 else decoded.permute(2, 0, 1)).to(picture)


def resize_and_back(picture: Tensor) -> Tensor:
    """One pixel smaller in both directions, and back."""
    height, width = picture.shape[-2:]
    if min(height, width) < 3:
        return picture.clone()
    small = F.interpolate(picture[None], (height - 1, width - 1), mode="bilinear", align_corners=False)
    return F.interpolate(small, (height, width), mode="bilinear", align_corners=False)[0].clamp(0, 1)


def brighten(picture: Tensor) -> Tensor:
    """Five per cent brighter."""
    return (BRIGHTER * picture).clamp(0, 1)


COPIES: dict[Copy, Callable[[Tensor], Tensor]] = {
    "jpeg": as_jpeg,
    "resized": resize_and_back,
    "brighter": brighten,
}


def near_copies(picture: Tensor) -> Tensor:
    """[kind, channel, height, width], in the order of `COPIES`."""
    return torch.stack([copy(picture) for copy in COPIES.values()])


def hash_pictures(pictures: Tensor) -> list[str]:
    """Of the 256 levels of each: what is saved and loaded again is the same picture."""
    levels = (255 * pictures.float().cpu().clamp(0, 1)).round().to(torch.uint8).contiguous().numpy()
    shape = f"{levels.shape[1:]}".encode()
    return [sha256(shape + one.tobytes()) for one in levels]


def without_copies_of(pictures: Tensor, gallery: Tensor) -> list[int]:
    """Rows of the gallery that are none of these pictures, each picture of the gallery once."""
    known = set(hash_pictures(pictures))
    rows: list[int] = []
    for row, digest in enumerate(hash_pictures(gallery)):
        if digest not in known:
            known.add(digest)
            rows.append(row)
    return rows
