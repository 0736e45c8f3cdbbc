"""Arrays, idx files and CIFAR files whose headers lie, or whose numbers are none."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostile.forged import idx, npy, npz, whole, zipped

GOOD = whole(np.zeros((4, 8, 8), np.uint8))
LABELS = whole(np.array([0, 1, 0, 1]))
FLOATS = np.full((4, 1, 8, 8), 0.5, np.float32)
GIGA = 2**30


def changed(place: tuple[int, ...], value: float) -> bytes:
    array = FLOATS.copy()
    array[place] = value
    return whole(array)


IMAGES: dict[str, tuple[bytes, str]] = {
    "7 GiB in 128 bytes": (npy((GIGA * 7 // 192, 8, 8, 3)), "numbers are more than"),
    "a shape that wraps to zero": (npy((2**62, 4)), "numbers are more than"),
    "a shape that wraps to four": (npy((2**32, 2**32, 4)), "numbers are more than"),
    "none of 10^18": (npy((0, 10**18)), "images are uint8 (0, 10000000"),
    "no picture": (npy((0, 8, 8)), "there is no picture"),
    "no row": (npy((4, 0, 8)), "there is no picture"),
    "sides below zero": (npy((-4, -8, 8), content=bytes(256)), "shape (-4, -8, 8)"),
    "one side below zero": (npy((-1,)), "shape (-1,)"),
    "a side that is text": (npy(("4", 8, 8)), "damaged"),
    "a side that is a number with a point": (npy((4.0, 8, 8)), "damaged"),
    "a shape that is no tuple": (npy([4, 8, 8]), "damaged"),
    "shorter than its header": (npy((4, 8, 8), content=bytes(255)), "is not as long"),
    "longer than its header": (npy((4, 8, 8), content=bytes(257)), "is not as long"),
    "objects": (whole(np.array([{}] * 4, object), allow_pickle=True), "Python objects"),
    "objects in a table": (npy((4,), [("a", "|O")], bytes(32)), "Python objects"),
    "complex numbers": (whole(np.zeros((4, 1, 8, 8), np.complex64)), "images are complex64"),
    "dates": (whole(np.zeros((4, 1, 8, 8), "M8[s]")), "images are datetime64"),
    "texts": (whole(np.full((4, 1, 8, 8), "a")), "images are <U1"),
    "fields": (whole(np.zeros((4, 8, 8), [("a", "u1")])), "images are"),
    "whole numbers": (whole(np.zeros((4, 8, 8), np.int16)), "images are int16"),
    "bits": (whole(np.zeros((4, 8, 8), bool)), "images are bool"),
    "one number": (whole(np.array(3, np.uint8)), "images are uint8 ()"),
    "a list": (whole(np.zeros(4, np.uint8)), "images are uint8 (4,)"),
    "five axes": (whole(np.zeros((4, 1, 8, 8, 1), np.uint8)), "images are uint8"),
    "floats without channels": (whole(np.zeros((4, 8, 8), np.float32)), "images are float32"),
    "four channels": (whole(np.zeros((4, 8, 8, 4), np.uint8)), "4 channels"),
    "NaN": (changed((0, 0, 0, 0), np.nan), "1 numbers that are NaN"),
    "infinite": (changed((3, 0, 7, 7), -np.inf), "1 numbers that are NaN"),
    "below 0": (changed((1, 0, 2, 2), -0.1), "run from -0.1"),
    "above 1": (changed((1, 0, 2, 2), 255), "to 255, scale them"),
    "entries of a gigabyte": (npy((100,), "<U200000000"), "entries of 800,000,000 bytes"),
    "entries of nothing": (npy((4, 8, 8), "|S0"), "images are"),
    "a type that is none": (npy((4,), "os.system"), "damaged"),
    "a header that is code": (npy("__import__('os').system('true')"), "damaged"),
    "a header without a shape": (b"\x93NUMPY\x01\x00\x02\x00{}", "damaged"),
    "a header longer than the file": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "damaged"),
    "a version to come": (npy((4, 8, 8), content=bytes(256), version=(9, 9)), "damaged"),
    "a pickle": (b"cos\nsystem\n(S'touch marker'\ntR.", "damaged"),
    "nothing": (b"", "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("kind", IMAGES)
def test_images_that_lie(kind: str, refused) -> None:
    content, naming = IMAGES[kind]
    npz(Path("mine.npz"), {"images.npy": content, "labels.npy": LABELS})
    line = refused("audit", "--data", "mine.npz", "--images", "1", naming=naming)
    assert "mine.npz" in line


LABELLED: dict[str, tuple[Any, str]] = {
    "below zero": (np.array([0, -1, 0, 1]), "labels run from -1"),
    "huge": (np.array([0, 2**40, 0, 1]), "labels run from 0"),
    "a million": (np.array([0, 10**6, 0, 1]), "labels run from 0"),
    "beyond signed": (np.array([0, 2**64 - 1, 0, 1], np.uint64), "labels run from 0"),
    "with a point": (np.array([0.0, 1.0, 0.0, 1.0]), "labels are float64"),
    "NaN": (np.array([0.0, np.nan, 0.0, 1.0]), "labels have numbers that are NaN"),
    "texts": (np.array(["cat", "dog", "cat", "dog"]), "labels are <U3"),
    "bits": (np.array([True, False, True, False]), "labels are bool"),
    "complex": (np.zeros((4, 3), np.complex64), "labels are complex64"),
    "too few": (np.array([0, 1]), "labels have shape (2,)"),
    "one": (np.array(0), "labels have shape ()"),
    "a table of twos": (np.full((4, 3), 2), "every entry must be 0 or 1"),
    "a table of NaN": (np.full((4, 3), np.nan), "labels have numbers that are NaN"),
    "a table without columns": (np.zeros((4, 0)), "labels have shape (4, 0)"),
    "a cube": (np.zeros((4, 2, 2)), "labels have shape (4, 2, 2)"),
}


@pytest.mark.parametrize("kind", LABELLED)
def test_labels_that_are_none(kind: str, refused) -> None:
    labels, naming = LABELLED[kind]
    npz(Path("mine.npz"), {"images.npy": GOOD, "labels.npy": whole(labels)})
    line = refused("audit", "--data", "mine.npz", "--images", "1", naming=naming)
    assert "mine.npz" in line


def test_a_high_label_of_many_pictures_is_a_table_too_wide(refused) -> None:
    """200,000 pictures of one pixel and one label of 99,999 would be 80 GB of one-hot targets."""
    labels = np.zeros(200_000, np.int64)
    labels[0] = 99_999
    npz(Path("mine.npz"), {"images.npy": whole(np.zeros((200_000, 1, 1), np.uint8)), "labels.npy": whole(labels)})
    refused("audit", "--data", "mine.npz", naming="mine.npz: labels")


@pytest.mark.parametrize(
    "names",
    [np.array(["a"]), np.array(["a", "b\nc"]), np.array([1.5, 2.5]), np.array([[0], [1]]), np.array([b"a", b"b"])],
)
def test_class_names_that_are_none(names: np.ndarray, refused) -> None:
    npz(Path("mine.npz"), {"images.npy": GOOD, "labels.npy": LABELS, "class_names.npy": whole(names)})
    refused("audit", "--data", "mine.npz", naming="mine.npz: class_names")


def test_archives_that_lie(refused) -> None:
    path = Path("mine.npz")
    both = [("images.npy", GOOD), ("labels.npy", LABELS)]
    npz(path, [*both, ("images", GOOD)])
    refused("audit", "--data", "mine.npz", naming="mine.npz: images is there twice")
    npz(path, both + [(f"x{k}.npy", LABELS) for k in range(1000)])
    refused("audit", "--data", "mine.npz", naming="mine.npz: 1,002 arrays")
    npz(path, {"images.npy": GOOD})
    refused("audit", "--data", "mine.npz", naming="mine.npz: no array 'labels'")
    npz(path, {})
    refused("audit", "--data", "mine.npz", naming="mine.npz: no array 'images'")
    path.write_bytes(b"PK\x05\x06")
    refused("audit", "--data", "mine.npz", naming="mine.npz: damaged")
    path.write_bytes(GOOD)
    refused("audit", "--data", "mine.npz", naming="mine.npz: damaged")


def test_a_small_archive_cannot_become_a_large_one(refused) -> None:
    """80 MB of zeros in 80 kB."""
    side = 9000
    zeros = npy((1, side, side), content=bytes(side * side))
    npz(Path("mine.npz"), {"images.npy": zeros, "labels.npy": LABELS}, zipfile.ZIP_DEFLATED)
    assert Path("mine.npz").stat().st_size < 100_000
    refused("audit", "--data", "mine.npz", naming="mine.npz: images.npy would grow")


def test_a_member_that_claims_more_bytes_than_the_file_has(refused) -> None:
    path = Path("mine.npz")
    npz(path, {"images.npy": GOOD, "labels.npy": LABELS})
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    struct.pack_into("<II", content, entry + 20, 2**31, 2**31)
    path.write_bytes(content)
    refused("audit", "--data", "mine.npz", naming="mine.npz: its members claim more bytes")


PIXELS = bytes(4 * 28 * 28)
IDX = {
    "nothing": (b"", "not an idx file"),
    "three bytes": (b"\0\0\x08", "not an idx file"),
    "floats": (idx((4, 28, 28), PIXELS, 0x0D03), "not an idx file"),
    "four axes": (idx((4, 28, 28, 1), PIXELS), "not an idx file"),
    "no picture": (idx((0, 28, 28), b""), "header promises 0 x 28 x 28"),
    "four gigabytes": (idx((2**32 - 1, 28, 28), PIXELS), "header promises 4294967295"),
    "another size": (idx((4, 14, 56), PIXELS), "header promises 4 x 14 x 56"),
    "truncated": (idx((4, 28, 28), PIXELS[:-1]), "the file has 3,135"),
    "too long": (idx((4, 28, 28), PIXELS + b"\0"), "the file has more"),
    "a header alone": (idx((60_000, 28, 28), b""), "the file has 0"),
    "a gzip file by content": (zipped(idx((4, 28, 28), PIXELS)), "not an idx file"),
}


@pytest.mark.parametrize("kind", IDX)
def test_idx_files_that_lie(kind: str, refused) -> None:
    content, naming = IDX[kind]
    Path("t10k-images-idx3-ubyte").write_bytes(content)
    Path("t10k-labels-idx1-ubyte").write_bytes(idx((4,), bytes(4)))
    line = refused("audit", "--data", "fashion-mnist", "--data-option", "root=.", naming=naming)
    assert "t10k-images-idx3-ubyte" in line


@pytest.mark.parametrize(
    ("name", "size"), [("cifar10", 0), ("cifar10", 3072), ("cifar10", 3073 * 10_001), ("cifar100", 7)]
)
def test_cifar_files_of_the_wrong_size(name: str, size: int, refused) -> None:
    file = {"cifar10": "test_batch.bin", "cifar100": "test.bin"}[name]
    with open(file, "wb") as content:
        content.truncate(size)
    refused("audit", "--data", name, "--data-option", "root=.", naming=f"{file}: {size:,} bytes")


@pytest.mark.parametrize("kind", ["7 GiB in 128 bytes", "a shape that wraps to zero", "objects", "a pickle", "nothing"])
def test_weights_of_a_metric_that_lie(kind: str, refused) -> None:
    npz(Path("l.npz"), {"features.0.weight.npy": IMAGES[kind][0]})
    refused("audit", "--data", "digits", "--metric", "lpips", "--lpips-weights", "l.npz", naming="l.npz: ")


def test_cifar_labels_and_pickles(refused) -> None:
    Path("test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
    refused("audit", "--data", "cifar10", "--data-option", "root=.", naming="test_batch.bin: labels run from 10")
    Path("test_batch.bin").unlink()
    Path("cifar-10-batches-py").mkdir()
    refused("audit", "--data", "cifar10", "--data-option", "root=.", naming="pickles run code")
    npz(Path("cifar100_labels.npz"), {"y_test.npy": npy((GIGA,))})
    refused("audit", "--data", "cifar100", "--data-option", "root=.", naming="cifar100_labels.npz: y_test.npy")
    npz(Path("cifar100_labels.npz"), {"y_test.npy": whole(np.array([None] * 9, object), allow_pickle=True)})
    refused("audit", "--data", "cifar100", "--data-option", "root=.", naming="Python objects")
