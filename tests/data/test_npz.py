"""Arrays of the user's own: accepted layouts, and headers that promise too much."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradveil.core.errors import ConfigError
from gradveil.data import load

BYTES = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)
LABELS = np.array([0, 2, 1, 0, 2])


def save(folder: Path, **arrays: Any) -> str:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return str(path)


def test_bytes_with_channels_last(tmp_path: Path) -> None:
    data = load(save(tmp_path, images=BYTES, labels=LABELS, class_names=np.array(["a", "b", "c"])))
    assert data.shape == (3, 6, 7)
    assert np.array_equal((data.images * 255).round().byte().numpy(), BYTES.transpose(0, 3, 1, 2))
    assert [data.class_names[k] for k in data.targets.argmax(1)] == ["a", "c", "b", "a", "c"]
    assert data.name == "mine"


def test_floats_with_channels_first_and_columns_of_labels(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((5, 1, 4, 4))
    data = load(save(tmp_path, images=images, labels=LABELS[:, None]), limit=3)
    assert np.array_equal(data.images.numpy(), images[:3].astype(np.float32))
    assert data.targets.argmax(1).tolist() == [0, 2, 1]
    assert data.targets.shape == (3, 3)  # classes are those of the whole file
    assert data.mean == pytest.approx((images[:3].mean(),))


def test_several_labels_at_once(tmp_path: Path) -> None:
    table = np.array([[1, 1, 0, 0]] * 5)
    data = load(save(tmp_path, images=BYTES, labels=table))
    assert data.targets.tolist() == table.tolist()
    assert data.loss == "binary-cross-entropy"
    one_each = load(save(tmp_path, images=BYTES, labels=np.eye(5, dtype=int)))
    assert one_each.loss == "cross-entropy"  # a table too, but of one label each
    assert data.class_names == ("0", "1", "2", "3")


def test_splits_by_name_and_grey_bytes(tmp_path: Path) -> None:
    grey = BYTES[..., 0]
    path = save(tmp_path, train_images=grey, train_labels=LABELS, test_images=grey[:2], test_labels=LABELS[:2])
    assert load(path).images.shape == (2, 1, 6, 7)
    assert len(load(path, split="train")) == 5


NAN = np.full((5, 1, 2, 2), 0.5)
NAN[0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": NAN, "labels": LABELS}, "images have 2 numbers that are NaN"),
        ({"images": NAN[1:] * 4, "labels": LABELS[1:]}, "images run from 2 to 2, scale them"),
        ({"images": BYTES}, "no array 'labels' in it .found: images."),
        ({"labels": LABELS}, "no array 'images'"),
        ({"images": BYTES.astype(np.int64), "labels": LABELS}, "images are int64 .* expected uint8"),
        ({"images": BYTES[..., :2], "labels": LABELS}, "2 channels instead of 1 or 3"),
        ({"images": BYTES[:0], "labels": LABELS[:0]}, "there is no picture in them"),
        ({"images": BYTES, "labels": LABELS[:4]}, "labels have shape .4,. for 5 images"),
        ({"images": BYTES, "labels": LABELS - 1}, "expected whole numbers from 0"),
        ({"images": BYTES, "labels": np.full((5, 2), 3)}, "every entry must be 0 or 1"),
        (
            {"images": BYTES, "labels": LABELS, "class_names": np.array(["a"])},
            "class_names is <U1 .1,., the labels need",
        ),
        ({"images": BYTES, "labels": np.array([None] * 5)}, "holds Python objects"),
    ],
)
def test_arrays_that_cannot_be_used(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(save(tmp_path, **arrays))
    assert "mine.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((2**20, 64, 64, 3), "numbers are more than"), ((10, 6, 7, 3), "is not as long as its header says")],
)
def test_headers_are_read_before_the_array(tmp_path: Path, shape: tuple[int, ...], message: str) -> None:
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": shape})
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images.npy", member.getvalue())
    with pytest.raises(ConfigError, match=message):
        load(str(path))


def test_damaged_files(tmp_path: Path) -> None:
    path = Path(save(tmp_path, images=BYTES, labels=LABELS))
    whole = path.read_bytes()
    for keep in (0, 10, 200, len(whole) - 10):
        path.write_bytes(whole[:keep])
        with pytest.raises(ConfigError, match=r"damaged or not an \.npz file"):
            load(str(path))
    with pytest.raises(ConfigError, match="no such file"):
        load(str(tmp_path / "gone.npz"))


def test_flipped_bytes_give_data_or_config_errors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = Path(save(tmp_path, images=BYTES, labels=LABELS))
    whole, refused = path.read_bytes(), 0
    for _ in range(100):
        content = bytearray(whole)
        for place in rng.integers(0, len(content), 8):
            content[place] = rng.integers(256)
        path.write_bytes(content)
        try:
            load(str(path))
        except ConfigError:
            refused += 1
    assert refused > 30
