"""Picture folders from somebody else: bombs, halves, disguises, and links that lead out."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradveil.core.errors import ConfigError
from gradveil.data import load
from hostile.forged import megapixels, picture, png, tiff_of_frames

NOISE = np.random.default_rng(0).integers(1, 256, (32, 1 + 96), np.uint8)
NOISE[:, 0] = 0  # the filter of each row: none
ROWS = NOISE.tobytes()
JPEG, TIFF = picture("JPEG", quality=90), picture("TIFF")


def other(mode: str) -> bytes:
    return picture("GIF" if mode == "P" else "BMP", mode=mode)


def animated(kind: str) -> bytes:
    return picture(kind, save_all=True, append_images=[Image.new("RGB", (32, 32))])


def strips(rows: int) -> bytes:
    """A TIFF of 32 rows that says where its strips lie, but only for so many rows."""
    data = bytes(range(1, 33)) * rows
    tags = [(256, 3, 32), (257, 3, 32), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1), (278, 3, rows)]
    tags.append((279, 4, len(data)))
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + bytes(4)


FILES: dict[str, tuple[str, bytes, str]] = {
    "empty": ("x.png", b"", "not a picture"),
    "text": ("x.png", b"hello", "not a picture"),
    "a page": ("x.jpg", b"<html><script>alert(1)</script>", "not a picture"),
    "a drawing": ("x.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
    "a pickle": ("x.png", b"cos\nsystem\n(S'touch marker'\ntR.", "not a picture"),
    "PostScript": ("x.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
    "GIF in disguise": ("x.png", other("P"), "not a picture"),
    "BMP in disguise": ("x.jpg", other("RGB"), "not a picture"),
    "an unknown ending": ("x.xyz", picture(), "not one of"),
    "a picture that says it is DICOM": ("x.dcm", picture(), "damaged or not a DICOM file"),
    "a picture that says it is NIfTI": ("x.nii.gz", picture(), "damaged or not a NIfTI file"),
    "no ending": ("x", picture(), "not one of"),
    "26 megapixels": ("x.png", png(5200, 5000, b""), "5200x5000 pixels"),
    "100 megapixels": ("x.png", png(10_000, 10_000, b""), "more pixels"),
    "four billion each way": ("x.png", png(2**31 - 1, 2**31 - 1, b""), "x.png"),
    "no width": ("x.png", png(0, 32, b""), "x.png"),
    "half its bytes": ("x.png", picture()[:-900], "damaged or truncated"),
    "half its rows": ("x.png", png(32, 32, ROWS[: 97 * 16]), "damaged or truncated"),
    "all but its last row": ("x.png", png(32, 32, ROWS[: 97 * 31]), "damaged or truncated"),
    "no rows": ("x.png", png(32, 32, b""), "damaged or truncated"),
    "a wrong checksum": ("x.png", picture()[:30] + b"\0\0" + picture()[32:], "x.png"),
    "text that expands": ("x.png", png(32, 32, ROWS, zTXt=b"a\0\0" + zlib.compress(bytes(10**7))), "damaged"),
    "a profile that expands": ("x.png", png(32, 32, ROWS, iCCP=b"a\0\0" + zlib.compress(bytes(10**8))), "damaged"),
    "half of 16 bits of color": ("x.png", png(4, 4, bytes([0, *[1] * 24]) * 2, depth=16), "damaged or truncated"),
    "half of 16 bits of gray": ("x.png", png(4, 4, bytes([0, *[1] * 8]) * 2, depth=16, color=0), "damaged or trunc"),
    "16 bits and alpha": ("x.png", png(4, 4, bytes(4 * 17), depth=16, color=4), "more than 8 bits"),
    "32 bits": ("x.tif", picture("TIFF", mode="I"), "more than 8 bits"),
    "floats": ("x.tif", picture("TIFF", mode="F"), "more than 8 bits"),
    "animated PNG": ("x.png", animated("PNG"), "more than one"),
    "animated WebP": ("x.webp", animated("WEBP"), "more than one"),
    "a thousand frames": ("x.tif", tiff_of_frames(1000), "more than one"),
    "half a JPEG": ("x.jpg", JPEG[: len(JPEG) // 2], "damaged or truncated"),
    "half a JPEG, closed": ("x.jpg", JPEG[: len(JPEG) // 2] + b"\xff\xd9", "damaged or truncated"),
    "a JPEG without a picture": ("x.jpg", JPEG[:20] + b"\xff\xd9", "x.jpg"),
    "half a TIFF": ("x.tif", TIFF[: len(TIFF) // 2], "damaged or truncated"),
    "a TIFF without half of its strips": ("x.tif", strips(16), "damaged or truncated"),
    "half a WebP": ("x.webp", picture("WEBP")[:200], "x.webp"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_a_picture_that_cannot_be_used(kind: str, refused) -> None:
    name, content, naming = FILES[kind]
    Path("mine/a").mkdir(parents=True)
    Path("mine/a", name).write_bytes(content)
    line = refused("audit", "--data", "mine", "--images", "1", naming=naming)
    assert f"mine/a/{name}" in line


def test_900_megapixels_are_refused_by_the_header(refused) -> None:
    """A valid file of 120 kB that would be 10.8 GB as float32."""
    Path("mine/a").mkdir(parents=True)
    content = megapixels(30_000)
    assert len(content) < 200_000
    Path("mine/a/x.png").write_bytes(content)
    refused("audit", "--data", "mine", "--images", "1", naming="mine/a/x.png: more pixels than the limit")


def test_a_hundred_thousand_frames_are_not_counted(refused) -> None:
    Path("mine/a").mkdir(parents=True)
    Path("mine/a/x.tif").write_bytes(tiff_of_frames(100_000))
    refused("audit", "--data", "mine", "--images", "1", naming="mine/a/x.tif: holds more than one picture")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("palette.png", picture(mode="P")),
        ("16-bits-of-color.png", png(32, 32, bytes(32 * 193), depth=16)),
        ("16-bits-of-gray.png", png(32, 32, bytes(32 * 65), depth=16, color=0)),
        ("bits.png", picture(mode="1")),
        ("alpha.png", picture(mode="RGBA")),
        ("cmyk.jpg", picture("JPEG", mode="CMYK")),
        ("cmyk.tif", picture("TIFF", mode="CMYK")),
        ("really-a-jpeg.png", JPEG),
        ("black.png", png(32, 32, bytes(97 * 32))),
        ("black.jpg", picture("JPEG", mode="1")),
    ],
)
def test_documented_conversions(name: str, content: bytes, tmp_path: Path) -> None:
    """What is whole is read, whatever its kind, black corners included."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).write_bytes(content)
    assert load(str(tmp_path)).images.shape == (1, 3, 32, 32)


def build(tmp_path: Path, kind: str) -> None:
    """A folder with one thing wrong, beside a place that is none of its business."""
    secret, folder = tmp_path / "secret", tmp_path / "mine/a"
    for place in (secret, folder):
        place.mkdir(parents=True)
        (place / "x.png").write_bytes(picture())
    if kind == "link to a file":
        (folder / "y.png").symlink_to(secret / "x.png")
    elif kind == "link to a folder":
        (tmp_path / "mine/b").symlink_to(secret)
    elif kind == "link in steps":
        (tmp_path / "mine/.hop").symlink_to(secret)
        (tmp_path / "mine/b").symlink_to(".hop")
    elif kind == "link to nowhere":
        (folder / "y.png").symlink_to(tmp_path / "mine/a/gone.png")
    elif kind == "link to itself":
        (folder / "y.png").symlink_to("y.png")
    elif kind == "pipe":
        os.mkfifo(folder / "y.png")
    elif kind == "folder in a class":
        (folder / "y.png").mkdir()
    elif kind == "picture outside":
        (tmp_path / "mine/y.png").write_bytes(picture())
    elif kind == "empty class":
        (tmp_path / "mine/b").mkdir()
    elif kind == "only files":
        (folder / "x.png").unlink()
        folder.rmdir()
    elif kind == "other size":
        (folder / "y.png").write_bytes(picture(side=16))


FOLDERS = {
    "link to a file": "mine/a/y.png: a link that leads out",
    "link to a folder": "mine/b: a link that leads out",
    "link in steps": "mine/b: a link that leads out",
    "link to nowhere": "mine/a/y.png: not a file",
    "link to itself": "mine/a/y.png: ",
    "pipe": "mine/a/y.png: not a file",
    "folder in a class": "mine/a/y.png: not a file",
    "picture outside": "mine/y.png: a picture outside",
    "empty class": "mine/b: no pictures",
    "only files": "mine: no class folders",
    "other size": "mine/a/y.png: 16x16 pixels",
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_cannot_be_used(kind: str, tmp_path: Path, refused) -> None:
    build(tmp_path, kind)
    refused("audit", "--data", "mine", "--images", "1", naming=FOLDERS[kind])


@pytest.mark.parametrize("option", ["size=100000", "size=0", "channels=4", "limit=0", "split=7"])
def test_options_of_a_folder(option: str, tmp_path: Path, refused) -> None:
    build(tmp_path, "")
    refused("audit", "--data", "mine", "--data-option", option, naming=option.partition("=")[0])


def test_a_link_that_stays_inside_is_read(tmp_path: Path) -> None:
    build(tmp_path, "")
    (tmp_path / "mine/b").symlink_to("a")
    (tmp_path / "door").symlink_to("mine")
    assert len(load(str(tmp_path / "door"))) == 2
    (tmp_path / "mine/c").symlink_to("../secret")
    with pytest.raises(ConfigError, match="leads out"):
        load(str(tmp_path / "door"))
