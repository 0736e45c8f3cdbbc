"""Idx files that the test writes, plain and gzipped, whole and damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from gradveil.core.errors import ConfigError
from gradveil.data import load

PICTURES = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
LABELS = np.array([0, 9, 3, 3], np.uint8)


def idx(array: np.ndarray, magic: int | None = None) -> bytes:
    magic = 0x0800 + array.ndim if magic is None else magic
    return struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()


def write(folder: Path, images: bytes, labels: bytes, *, zipped: bool = False, split: str = "t10k") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
        path = folder / f"{split}-{kind}-ubyte{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(content) if zipped else content)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("inside", ["", "FashionMNIST/raw"])
def test_reads_plain_and_gzipped(tmp_path: Path, zipped: bool, inside: str) -> None:
    write(tmp_path / inside, idx(PICTURES), idx(LABELS), zipped=zipped)
    data = load("fashion-mnist", root=tmp_path, size=28)
    assert np.array_equal((data.images[:, 0] * 255).round().byte().numpy(), PICTURES)
    assert [data.class_names[k] for k in data.targets.argmax(1)] == ["T-shirt", "ankle boot", "dress", "dress"]
    assert load("fashion-mnist", root=tmp_path, limit=3).images.shape == (3, 1, 32, 32)


def test_splits_are_different_files(tmp_path: Path) -> None:
    write(tmp_path, idx(PICTURES), idx(LABELS))
    write(tmp_path, idx(PICTURES[:1]), idx(LABELS[:1]), split="train", zipped=True)
    assert len(load("fashion-mnist", root=tmp_path)) == 4
    assert len(load("fashion-mnist", root=tmp_path, split="train")) == 1


HUGE = struct.pack(">4I", 0x0803, 2**31, 2**15, 2**15)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (idx(PICTURES, magic=0x0D03), idx(LABELS), "images-idx3-ubyte: not an idx file of 3-dimensional bytes"),
        (idx(LABELS), idx(LABELS), "images-idx3-ubyte: not an idx file"),
        (b"", idx(LABELS), "images-idx3-ubyte: not an idx file"),
        (HUGE, idx(LABELS), "images-idx3-ubyte: header promises 2147483648 x 32768 x 32768, Fashion"),
        (idx(PICTURES)[:-1], idx(LABELS), "header promises 3,136 bytes, the file has 3,135"),
        (idx(PICTURES) + b"x", idx(LABELS), "header promises 3,136 bytes, the file has more"),
        (idx(PICTURES), idx(LABELS[:2]), "2 labels for 4 pictures"),
        (idx(PICTURES), idx(LABELS + 1), "labels run from 1 to 10"),
    ],
)
def test_damaged_files(tmp_path: Path, images: bytes, labels: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("fashion-mnist", root=write(tmp_path, images, labels))


@pytest.mark.parametrize("keep", [5, 40, -5])
def test_truncated_gzip(tmp_path: Path, keep: int) -> None:
    write(tmp_path, idx(PICTURES), idx(LABELS), zipped=True)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ConfigError, match=r"images-idx3-ubyte\.gz: damaged or truncated"):
        load("fashion-mnist", root=tmp_path)


def test_absent_files_say_where_to_put_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no idx files in .*put the four files of https"):
        load("fashion-mnist", root=tmp_path)
    write(tmp_path, idx(PICTURES), idx(LABELS))
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ConfigError, match="t10k-labels-idx1-ubyte: no such file"):
        load("fashion-mnist", root=tmp_path)
