"""Resizing by name, cropping by name, and pictures of 16 bits, against what others make of them."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from gradveil.audit.split import split_dataset
from gradveil.core.errors import ConfigError
from gradveil.data import load
from gradveil.data.picture_files import take

NOISE = np.random.default_rng(0).integers(0, 256, (21, 40, 3), np.uint8)
DEEP = np.random.default_rng(1).integers(1, 65536, (6, 5, 3), np.uint16)


def put(folder: Path, name: str, content: bytes) -> Path:
    (folder / "a").mkdir(exist_ok=True)
    (folder / "a" / name).write_bytes(content)
    return folder


def bytes_of(images: torch.Tensor) -> np.ndarray:
    return (images[0] * 255).round().byte().permute(1, 2, 0).numpy()


def png() -> bytes:
    buffer = BytesIO()
    Image.fromarray(NOISE).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["bicubic", "bilinear", "lanczos", "box", "nearest"])
def test_the_whole_picture_as_pillow_resizes_it(tmp_path: Path, name: str) -> None:
    """`Image.resize((8, 8))` is bicubic; torchvision's Resize((8, 8)) of a Pillow picture is bilinear."""
    put(tmp_path, "x.png", png())
    expected = np.asarray(Image.fromarray(NOISE).resize((8, 8), Image.Resampling[name.upper()]))
    assert np.array_equal(bytes_of(load(str(tmp_path), size=8, resize=name, crop="none").images), expected)
    if name == "bicubic":
        assert np.array_equal(np.asarray(Image.fromarray(NOISE).resize((8, 8))), expected)


def test_the_center_square_is_cropped_first(tmp_path: Path) -> None:
    put(tmp_path, "x.png", png())
    expected = Image.fromarray(NOISE[:, 9:30]).resize((8, 8), Image.Resampling.BILINEAR)
    assert np.array_equal(bytes_of(load(str(tmp_path), size=8, resize="bilinear").images), np.asarray(expected))


@pytest.mark.parametrize(("short_side", "size"), [(10, 8), (8, 8), (9, 8)])
def test_resize_first_is_torchvisions_resize_and_center_crop(tmp_path: Path, short_side: int, size: int) -> None:
    """As its documentation has it: the other side is int(short * long / short side), the corner is rounded."""
    put(tmp_path, "x.png", png())
    options = {"size": size, "resize": "bilinear", "crop": "resize-first", "short_side": short_side}
    width = int(short_side * 40 / 21)
    whole = np.asarray(Image.fromarray(NOISE).resize((width, short_side), Image.Resampling.BILINEAR))
    top, left = round((short_side - size) / 2.0), round((width - size) / 2.0)
    assert np.array_equal(bytes_of(load(str(tmp_path), **options).images), whole[top : top + size, left : left + size])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 8, "short_side": 9}, "short_side is of crop=resize-first"),
        ({"size": 8, "short_side": 7, "crop": "resize-first"}, r"it must be at least size \(8\)"),
        ({"short_side": 7, "crop": "resize-first"}, "it must be at least size"),
        ({"range": "5,5"}, "expected the numbers of black and white as in 0,4095"),
        ({"range": "0,inf"}, "expected the numbers of black and white"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict, message: str) -> None:
    put(tmp_path, "x.png", png())
    with pytest.raises(ConfigError, match=message):
        load(str(tmp_path), **options)


def test_a_strip_is_not_blown_up(tmp_path: Path) -> None:
    buffer = BytesIO()
    Image.new("L", (1, 2_000_000)).save(buffer, "PNG")
    put(tmp_path, "x.png", buffer.getvalue())
    with pytest.raises(ConfigError, match=r"x\.png: would have 224x448000000 pixels"):
        load(str(tmp_path), size=224, crop="resize-first")


def deep_png(pixels: np.ndarray) -> bytes:
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff(pixels: np.ndarray, **options: object) -> bytes:
    buffer = BytesIO()
    tifffile.imwrite(buffer, pixels, photometric="rgb" if pixels.shape[-1] == 3 else "minisblack", **options)
    return buffer.getvalue()


FILES = {
    "png": ("x.png", deep_png(DEEP)),
    "png with alpha": ("x.png", deep_png(np.concatenate([DEEP, DEEP[..., :1]], -1))),
    "tiff": ("x.tif", tiff(DEEP)),
    "tiff, big-endian": ("x.tif", tiff(DEEP, byteorder=">")),
    "tiff, packed": ("x.tif", tiff(DEEP, compression="zlib")),
    "tiff, packed by differences": ("x.tif", tiff(DEEP, compression="zlib", predictor=2)),
}


@pytest.mark.parametrize(("name", "content"), FILES.values(), ids=FILES)
def test_color_of_16_bits_keeps_them(tmp_path: Path, name: str, content: bytes) -> None:
    images = load(str(put(tmp_path, name, content))).images
    assert torch.equal(
        (images[0].double() * 65535).round().int(), torch.from_numpy(DEEP.astype(np.int32)).permute(2, 0, 1)
    )


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_gray_of_16_bits_keeps_them(tmp_path: Path, kind: str) -> None:
    gray = DEEP[..., :1]
    put(tmp_path, f"x.{kind}", deep_png(gray) if kind == "png" else tiff(gray[..., 0]))
    expected = torch.from_numpy(gray[..., 0].astype(np.int32))
    for channels in (1, 3):
        images = load(str(tmp_path), channels=channels).images
        assert images.shape[1] == channels
        assert all(torch.equal((one.double() * 65535).round().int(), expected) for one in images[0])


def test_the_range_of_16_bits_can_be_said(tmp_path: Path) -> None:
    gray = np.array([[[0], [1000], [4095], [9000]]], np.uint16)
    images = load(str(put(tmp_path, "x.png", deep_png(gray))), channels=1, range="0,4095").images
    assert images.flatten().tolist() == pytest.approx([0, 1000 / 4095, 1, 1])


def test_16_bits_are_resized_in_full_and_turned_upright(tmp_path: Path) -> None:
    flat = np.full((8, 8, 3), 12345, np.uint16)
    images = load(str(put(tmp_path, "x.png", deep_png(flat))), size=4, resize="bicubic").images
    assert torch.allclose(images, torch.tensor(12345 / 65535))
    tags = [(274, "H", 1, 6, True)]  # the camera was held on its side
    put(tmp_path, "x.png", b"")
    (tmp_path / "a/x.png").unlink()
    images = load(str(put(tmp_path, "x.tif", tiff(DEEP, extratags=tags)))).images
    assert torch.equal(
        (images[0, 0] * 65535).round().int(), torch.from_numpy(np.rot90(DEEP[..., 0], -1).astype(np.int32))
    )


def test_a_limit_keeps_the_shares_of_the_classes() -> None:
    classes = [[f"a{k}" for k in range(90)], [f"b{k}" for k in range(9)], ["c0"]]
    for limit, counts in ((100, (90, 9, 1)), (50, (45, 4, 1)), (20, (18, 2, 0)), (1, (1, 0, 0))):
        names = take(classes, limit)
        assert len(names) == limit
        assert abs(np.array([sum(n[0] == k for n in names) for k in "abc"]) - counts).max() <= 1
    even = [["a0", "a1"], ["b0", "b1"]]
    assert take(even, 3) == ["a0", "b0", "a1"]
    assert take(classes, None)[:5] == ["a0", "b0", "c0", "a1", "b1"]


def test_victims_have_the_distribution_of_the_data(tmp_path: Path) -> None:
    """Nineteen of twenty pictures are of one class: the classes of 400 victims of many seeds are, too."""
    for name, count in (("common", 38), ("rare", 2)):
        (tmp_path / name).mkdir()
        for k in range(count):
            Image.new("L", (2, 2), k).save(tmp_path / name / f"{k}.png")
    data = load(str(tmp_path))
    rare = [split_dataset(data, 10, 1, seed=seed).victims.labels[:, 0, 1].sum().item() for seed in range(40)]
    assert 8 <= sum(rare) <= 36  # 20 expected, standard deviation 3.7
