"""What a trained network has seen: no attack may bring one along that was trained on the pictures it is to find.

A file that gradveil trains holds two tensors about its training pictures. `trained_on` is the SHA-256 of each one's
bytes. `looks` is a thumbnail of each, by which a copy is found that was resized or stored with losses in between.
Pictures mirrored left and right count as the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.models.header import read_header

TRAINED_ON, LOOKS = "trained_on", "looks"
RECORDS = (TRAINED_ON, LOOKS)
DIGEST = 32  # bytes
SIDE = 8  # of a thumbnail
ALIKE = 2.5  # mean difference of thumbnails, of 255: one photograph at 128 and 32 pixels 2.3, two blood cells 3.5
AT_ONCE = 256


def as_bytes(images: Tensor) -> Tensor:
    """Pictures in [0, 1] in 8 bits, [n, channel, height, width]; those that are in 8 bits already stay."""
    if images.dtype != torch.uint8:
        images = (images.detach().clamp(0, 1) * 255).round().to(torch.uint8)
    return images.reshape(-1, *images.shape[-3:]).cpu().contiguous()


def picture_hashes(images: Tensor) -> Tensor:
    """SHA-256 over each picture's 8-bit pixels, channel by channel and row by row: uint8 [n, 32]."""
    digests = [hashlib.sha256(picture.numpy().tobytes()).digest() for picture in as_bytes(images)]
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).view(-1, DIGEST)


def thumbnails(images: Tensor) -> Tensor:
    """Mean colors of 8 x 8 cells, uint8 [n, 3, 8, 8]; gray counts as a color."""
    parts = [F.adaptive_avg_pool2d(part.float(), SIDE) for part in as_bytes(images).split(AT_ONCE)]
    return torch.cat(parts).expand(-1, 3, -1, -1).round().to(torch.uint8).contiguous()


def record_of(images: Tensor) -> dict[str, Tensor]:
    """What a file keeps of the pictures that its network was trained on."""
    return {TRAINED_ON: picture_hashes(images), LOOKS: thumbnails(images)}


def trained_on(file: str | Path) -> Tensor | None:
    """The hashes in a file; None if it says nothing, as a network from elsewhere does."""
    return read_records(Path(file)).get(TRAINED_ON)


def check_not_trained_on(file: str | Path, images: Tensor) -> None:
    """ConfigError if the network in the file was trained on one of the pictures [*, channel, height, width]."""
    path = Path(file)
    if seen := count_known(images, read_records(path)):
        raise ConfigError(
            f"{path}: was trained on {seen} of the {len(as_bytes(images))} pictures that are attacked, "
            "train it without them (`skip`, or for an inverter the settings of this audit) or attack other pictures"
        )


def count_known(images: Tensor, records: Mapping[str, Tensor]) -> int:
    """How many pictures [*, channel, height, width] are among those of the records, as they are or mirrored."""
    seen = torch.zeros(len(as_bytes(images)), dtype=torch.bool)
    for view in (images, images.flip(-1)):
        if TRAINED_ON in records:
            seen |= _list(picture_hashes(view), records[TRAINED_ON])
        if LOOKS in records:
            seen |= resembling(thumbnails(view), records[LOOKS])
    return int(seen.sum())


def _list(hashes: Tensor, known: Tensor) -> Tensor:
    there = {row.numpy().tobytes() for row in known}
    return torch.tensor([row.numpy().tobytes() in there for row in hashes], dtype=torch.bool)


def resembling(looks: Tensor, known: Tensor) -> Tensor:
    """Which of the thumbnails lie within `ALIKE` of one that is known."""
    ours, theirs = looks.flatten(1).float(), known.flatten(1).float()
    if not len(theirs):
        return torch.zeros(len(ours), dtype=torch.bool)
    nearest = [torch.cdist(part, theirs, p=1).amin(1) for part in ours.split(AT_ONCE)]
    return torch.cat(nearest) < ALIKE * ours.shape[1]


def read_records(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that say which pictures it has seen."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, give the path of a .safetensors file")
    header = read_header(path, path)
    expected = {TRAINED_ON: (DIGEST,), LOOKS: (3, SIDE, SIDE)}
    for name, shape in expected.items():
        if name in header and header[name][1:] != shape:
            raise ConfigError(f"{path}: {name}: has the shape {header[name]}, train the network again")
    try:
        with safe_open(path, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in RECORDS if name in header}
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file ({error}), save it again") from error
