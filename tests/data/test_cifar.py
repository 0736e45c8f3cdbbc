"""CIFAR from binary files that the test writes, and CIFAR-100 from the shared mosaics."""

from __future__ import annotations

import hashlib
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gradveil.core.errors import ConfigError
from gradveil.data import Dataset, load
from gradveil.data.cifar import NAMES100

SHARED = Path(__file__).parents[3] / "shared" / "data"
TEST_SHA256 = "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19"


def pixels(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), np.uint8)


def write(path: Path, labels: np.ndarray, pictures: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.concatenate([labels, pictures.reshape(len(pictures), -1)], axis=1).astype(np.uint8).tofile(path)


def as_bytes(data: Dataset) -> np.ndarray:
    return (data.images * 255).round().byte().numpy()


def test_cifar10_binary(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    write(folder / "test_batch.bin", np.array([[3], [9]]), pixels(2))
    for k in range(1, 6):
        write(folder / f"data_batch_{k}.bin", np.array([[k]]), pixels(1, seed=k))
    test, train = load("cifar10", root=tmp_path), load("cifar10", root=folder, split="train")
    assert np.array_equal(as_bytes(test), pixels(2))
    assert [test.class_names[k] for k in test.targets.argmax(1)] == ["cat", "truck"]
    assert np.array_equal(as_bytes(train), np.concatenate([pixels(1, seed=k) for k in range(1, 6)]))
    assert train.targets.argmax(1).tolist() == [1, 2, 3, 4, 5]
    assert len(load("cifar10", root=tmp_path, split="train", limit=2)) == 2


def test_files_behind_the_limit_are_not_needed(tmp_path: Path) -> None:
    write(tmp_path / "test_batch.bin", np.array([[3]]), pixels(1))
    write(tmp_path / "data_batch_1.bin", np.array([[1], [2]]), pixels(2))
    assert load("cifar10", root=tmp_path, split="train", limit=2).targets.argmax(1).tolist() == [1, 2]
    with pytest.raises(ConfigError, match=r"data_batch_2\.bin: no such file"):
        load("cifar10", root=tmp_path, split="train", limit=3)


def test_the_first_classes_alone(tmp_path: Path) -> None:
    write(tmp_path / "test.bin", np.array([[19, 99], [4, 0], [0, 1]]), pixels(3))
    data = load("cifar100", root=tmp_path, classes=2)
    assert np.array_equal(as_bytes(data), pixels(3)[1:])
    assert data.class_names == NAMES100[:2]
    assert data.targets.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ConfigError, match="classes"):
        load("cifar100", root=tmp_path, classes=0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared/data is not here")
def test_archives_of_other_classes_are_not_needed(tmp_path: Path) -> None:
    for name in ("cifar100_labels.npz", "cifar100_train_0.zip"):
        (tmp_path / name).symlink_to(SHARED / name)
    some = load("cifar100", root=tmp_path, split="train", classes=2)
    assert some.targets.sum(0).tolist() == [500, 500]
    with pytest.raises(ConfigError, match=r"cifar100_train_1\.zip: missing or damaged"):
        load("cifar100", root=tmp_path, split="train", classes=35)


def test_cifar100_binary_takes_the_fine_label(tmp_path: Path) -> None:
    write(tmp_path / "cifar-100-binary" / "test.bin", np.array([[19, 99], [4, 0]]), pixels(2))
    data = load("cifar100", root=tmp_path)
    assert np.array_equal(as_bytes(data), pixels(2))
    assert [data.class_names[k] for k in data.targets.argmax(1)] == ["worm", "apple"]
    with pytest.raises(ConfigError, match=r"train\.bin: no such file"):
        load("cifar100", root=tmp_path, split="train")


@pytest.mark.parametrize("size", [0, 1, 3073, 3074 * 2 - 1, 3074 * 50_001])
def test_cifar100_wrong_sizes(tmp_path: Path, size: int) -> None:
    with (tmp_path / "test.bin").open("wb") as file:
        file.truncate(size)  # sparse: the large one costs no disk
    with pytest.raises(ConfigError, match=rf"test\.bin: {size:,} bytes are not 1 to 50,000 records of 3,074 bytes"):
        load("cifar100", root=tmp_path)


def test_labels_out_of_range(tmp_path: Path) -> None:
    write(tmp_path / "test_batch.bin", np.array([[3], [10]]), pixels(2))
    with pytest.raises(ConfigError, match="labels run from 3 to 10, expected 0 to 9"):
        load("cifar10", root=tmp_path)


def test_pickles_are_refused_and_absence_says_where_to_put_the_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no cifar100 here; unpack the binary version from https.*cifar-100-binary"):
        load("cifar100", root=tmp_path)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    (folder / "test").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    for root in (tmp_path, folder):
        with pytest.raises(ConfigError, match="pickles run code when read; unpack the binary version"):
            load("cifar100", root=root)


needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="shared/data is not here")


@needs_shared
def test_shared_mosaics_decode_to_the_published_hash() -> None:
    data = load("cifar100", root=SHARED)
    content = np.ascontiguousarray(as_bytes(data).transpose(0, 2, 3, 1))
    assert hashlib.sha256(content.tobytes()).hexdigest() == TEST_SHA256
    labels = np.load(SHARED / "cifar100_labels.npz")
    assert data.targets.argmax(1).tolist() == labels["y_test"].tolist()
    assert data.class_names == NAMES100 == tuple(labels["fine_names"])
    few = load("cifar100", root=SHARED, limit=20)
    assert torch.equal(few.images, data.images[:20])
    # the constants are those of the training set, which the test set resembles
    assert data.images.mean((0, 2, 3)).tolist() == pytest.approx(data.mean, abs=0.01)
    assert data.images.std((0, 2, 3)).tolist() == pytest.approx(data.std, abs=0.01)


@needs_shared
def test_damaged_mosaics(tmp_path: Path) -> None:
    (tmp_path / "cifar100_labels.npz").write_bytes((SHARED / "cifar100_labels.npz").read_bytes())
    archive = tmp_path / "cifar100_test.zip"
    with pytest.raises(ConfigError, match=r"cifar100_test\.zip: missing or damaged"):
        load("cifar100", root=tmp_path, limit=1)
    for member, message in ((b"RIFF", "not a picture in a known format"), (tiny(), "not a mosaic of 100 pictures")):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("test/49_mountain.webp", member)  # the class of the first test picture
        with pytest.raises(ConfigError, match=message):
            load("cifar100", root=tmp_path, limit=1)
    with zipfile.ZipFile(archive, "w"):
        pass
    with pytest.raises(ConfigError, match="no mosaic of class 49"):
        load("cifar100", root=tmp_path, limit=1)


def test_damaged_mosaic_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar100_labels.npz", y_test=np.zeros(5, np.uint8))
    with pytest.raises(ConfigError, match=r"y_test is uint8 \(5,\), expected uint8 \(10000,\)"):
        load("cifar100", root=tmp_path)
    (tmp_path / "cifar100_labels.npz").write_bytes(b"PK nonsense")
    with pytest.raises(ConfigError, match=r"cifar100_labels\.npz: damaged"):
        load("cifar100", root=tmp_path)


def tiny() -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (32, 32)).save(buffer, "WEBP", lossless=True)
    return buffer.getvalue()
