"""Folders of pictures: order, cropping, and files that are not what they seem."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gradveil.core.errors import ConfigError
from gradveil.data import load


def put(path: Path, color: tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for k, name in enumerate(["dog/b.png", "dog/a.png", "cat/x.png", "dog/c.webp"]):
        put(tmp_path / "pets" / name, color=(50 * k, 0, 255))
    return tmp_path / "pets"


def test_classes_take_turns_in_sorted_order(folder: Path) -> None:
    (folder / "dog" / ".DS_Store").write_bytes(b"x")
    data = load(str(folder))
    assert data.name == "pets"
    assert data.class_names == ("cat", "dog")
    assert data.targets.argmax(1).tolist() == [0, 1, 1, 1]
    red = (data.images[:, 0, 0, 0] * 255).round().tolist()
    assert red[:3] == [100, 50, 0]  # cat/x, dog/a, dog/b
    assert torch.equal(load("image-folder", root=folder, limit=2).images, data.images[:2])


def test_constants_are_those_of_the_pictures(folder: Path) -> None:
    data = load(str(folder), limit=3)
    assert data.mean == pytest.approx((50 / 255, 0, 1))
    assert data.std == pytest.approx((np.std([0, 50, 100]) / 255, 1, 1))  # a constant channel is not divided by zero


def test_size_takes_the_center_square_with_lanczos(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 40, 3), np.uint8)
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "wide.png")
    expected = Image.fromarray(pixels[:, 10:30]).resize((8, 8), Image.Resampling.LANCZOS)
    got = (load(str(tmp_path), size=8).images[0] * 255).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(got, np.asarray(expected))


def test_grey_and_upright(tmp_path: Path) -> None:
    image = Image.new("L", (4, 2))
    image.putpixel((0, 0), 200)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / "g.png", exif=exif)
    data = load(str(tmp_path), channels=1)
    assert data.shape == (1, 4, 2)
    assert data.images[0, 0, 0, 1] == pytest.approx(200 / 255)


def test_split_folders(folder: Path, tmp_path: Path) -> None:
    put(tmp_path / "both" / "train" / "a" / "1.png")
    put(tmp_path / "both" / "test" / "a" / "1.png", color=(255, 0, 0))
    assert load(str(tmp_path / "both")).images[0, 0].max() == 1
    assert load(str(tmp_path / "both"), split="train").images[0, 0].max() < 0.1
    with pytest.raises(ConfigError, match="no split 'val' here"):
        load(str(tmp_path / "both"), split="val")


def test_sizes_that_differ_need_size(folder: Path) -> None:
    put(folder / "dog" / "z.png", size=(9, 8))
    with pytest.raises(ConfigError, match=r"z\.png: 9x8 pixels, but x\.png has 8x8; give size="):
        load(str(folder))
    assert load(str(folder), size=8).shape == (3, 8, 8)


def jpeg() -> bytes:
    buffer = BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG")
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that promises a size and has hardly any content."""
    chunks = b""
    for kind, body in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", b"x"),
        (b"IEND", b""),
    ):
        chunks += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return b"\x89PNG\r\n\x1a\n" + chunks


def frames() -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "TIFF", save_all=True, append_images=[Image.new("RGB", (4, 4), (9, 9, 9))])
    return buffer.getvalue()


def deep() -> bytes:
    buffer = BytesIO()
    Image.fromarray(np.full((4, 4), 70_000, np.int32)).save(buffer, "TIFF")
    return buffer.getvalue()


def gif() -> bytes:
    buffer = BytesIO()
    Image.new("P", (4, 4)).save(buffer, "GIF")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jpg", jpeg()[:-200], "damaged or truncated"),
        ("a.jpg", jpeg()[:30], "damaged or truncated|not a picture"),
        ("a.png", b"hello", "not a picture in a known format"),
        ("a.png", b"", "not a picture in a known format"),
        ("a.png", gif(), "not a picture in a known format"),
        ("a.png", png_header(4, 4), "damaged or truncated"),
        ("a.png", png_header(5001, 5000), "5001x5000 pixels, the limit is 25,000,000"),
        ("a.png", png_header(10_000, 10_000), "more pixels than the limit"),
        ("a.png", png_header(100_000, 100_000), "more pixels than the limit"),
        ("a.tif", frames(), "holds more than one picture"),
        ("a.tif", deep(), "more than 8 bits per channel"),
        ("a.heic", b"anything", "not one of .*convert or remove it"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / "a" / name
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(str(tmp_path))
    assert str(caught.value).startswith(f"{path}: ")


def test_flipped_bytes_give_pictures_or_config_errors(tmp_path: Path) -> None:
    """Nothing but a ConfigError comes out of a damaged file, whatever Pillow makes of it."""
    rng = np.random.default_rng(0)
    path = put(tmp_path / "a" / "x.tif")
    whole = {".tif": path.read_bytes(), ".png": deep(), ".jpg": jpeg()}
    path.unlink()
    refused = 0
    for trial in range(90):
        suffix = (".tif", ".png", ".jpg")[trial % 3]
        content = bytearray(whole[suffix])
        for place in rng.integers(0, min(len(content), 300), 6):
            content[place] = rng.integers(256)
        path = tmp_path / "a" / f"x{suffix}"
        path.write_bytes(content)
        try:
            load(str(tmp_path))
        except ConfigError:
            refused += 1
        path.unlink()
    assert refused > 30


def test_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no class folders here"):
        load(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match="no pictures in this class"):
        load(str(tmp_path))
    with pytest.raises(ConfigError, match="no such folder"):
        load("image-folder", root=tmp_path / "gone")


@pytest.mark.parametrize("options", [{"size": 0}, {"channels": 4}, {"limit": -1}])
def test_wrong_options(folder: Path, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="image-folder: "):
        load(str(folder), **options)
