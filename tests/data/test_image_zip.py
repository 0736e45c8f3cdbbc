"""Pictures with a table of labels, or in folders inside a zip; ImageNet pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_files import png, zipped

from gradveil.core.errors import ConfigError
from gradveil.data import load

TABLE = b'file,name,grade\n1.png,"boat, small",10\n2.png,car,9\n3.png,car,10\n'
MEMBERS = {"1.png": png(1), "2.png": png(2), "3.png": png(3), "labels.csv": TABLE}


def reds(images: torch.Tensor) -> list[int]:
    return (images[:, 0, 0, 0] * 255).round().int().tolist()


def test_classes_by_the_table(tmp_path: Path) -> None:
    data = load(str(zipped(tmp_path / "pets.zip", MEMBERS)), label="name")
    assert data.name == "pets"
    assert data.class_names == ("boat, small", "car")
    assert data.targets.argmax(1).tolist() == [0, 1, 1]
    assert reds(data.images) == [1, 2, 3]
    assert data.loss == "cross-entropy"


def test_classes_that_are_numbers_are_ordered_as_numbers(tmp_path: Path) -> None:
    data = load("image-zip", root=zipped(tmp_path / "a.zip", MEMBERS), label="grade")
    assert data.class_names == ("9", "10")
    assert reds(data.images) == [2, 1, 3]  # the first of each class first


def test_fewer_classes_and_fewer_pictures(tmp_path: Path) -> None:
    root = zipped(tmp_path / "a.zip", MEMBERS)
    assert reds(load("image-zip", root=root, label="name", classes=1).images) == [1]
    assert load("image-zip", root=root, label="name", limit=2).targets.shape == (2, 2)


def test_a_folder_with_a_table(tmp_path: Path) -> None:
    for name, content in MEMBERS.items():
        (tmp_path / name).write_bytes(content)
    expected = load("image-zip", root=zipped(tmp_path.parent / "a.zip", MEMBERS), label="name")
    got = load("image-zip", root=tmp_path, label="name")
    assert torch.equal(got.images, expected.images)
    assert torch.equal(got.targets, expected.targets)


def test_classes_by_folder_splits_and_words(tmp_path: Path) -> None:
    members = {"train/n1/a.png": png(1), "val/n1/b.png": png(2), "val/n2/c.png": png(3), "train/n2/x/d.png": png(4)}
    words = {"classes.csv": b'wnid,words\nn1,"slug, snail"\n'}
    data = load(str(zipped(tmp_path / "a.zip", members | words)))
    assert data.class_names == ("slug, snail", "n2")
    assert reds(data.images) == [2, 3]
    assert load(str(tmp_path / "a.zip"), split="train").class_names == ("slug, snail", "x")


@pytest.mark.parametrize(
    ("members", "options", "message"),
    [
        (MEMBERS, {}, r"labels\.csv: no column 'label' \(found: file, name, grade\)"),
        (MEMBERS | {"4.png": png()}, {"label": "name"}, r"4\.png has no line in labels\.csv"),
        (MEMBERS | {"labels.csv": TABLE + b"5.png,car,9\n"}, {"label": "name"}, r"names '5\.png', which is not there"),
        (MEMBERS | {"labels.csv": TABLE + b"1.png,car,9\n"}, {"label": "name"}, "a file is there twice"),
        (MEMBERS | {"labels.csv": TABLE.replace(b"car", b"")}, {"label": "name"}, "name is '' in a line"),
        (MEMBERS | {"labels.csv": b"\xff\xfe"}, {"label": "name"}, "not a table of comma-separated values"),
        (MEMBERS | {"labels.csv": b""}, {"label": "name"}, "no column 'file'"),
        (MEMBERS | {"run.sh": b"x"}, {"label": "name"}, r"run\.sh: not one of"),
        ({"1.png": png()}, {}, r"1\.png: a picture without a class"),
        ({"labels.csv": TABLE}, {"label": "name"}, "no pictures in it"),
        ({"a/1.png": png(), "a/2.png": png(size=5)}, {}, r"2\.png: 5x5 pixels, but 1\.png has 4x4; give size="),
        ({"a/1.png": png()}, {"split": "val"}, "unknown split 'val'"),
        ({"a/1.png": png()}, {"channels": 2}, "choose 1"),
        ({"a/1.png": png()}, {"size": 10**6}, "more than the"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, members: dict[str, bytes], options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load(str(zipped(tmp_path / "a.zip", members)), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "options", "shape", "classes"),
    [
        ("tinyimagenet64_20cls.zip", {"limit": 40}, (3, 64, 64), 20),
        ("bccd_cells64_900.zip", {"limit": 9}, (3, 64, 64), 3),
        ("chestxray128_gray.zip", {"label": "view", "channels": 1, "limit": 9}, (1, 128, 128), 3),
    ],
)
def test_real_archives(shared_data: Path, name: str, options: dict, shape: tuple, classes: int) -> None:
    data = load(str(shared_data / name), **options)
    assert data.shape == shape
    assert len(data.class_names) == classes
    assert len(data) == options["limit"]
    assert (data.targets[:classes].sum(0) == 1).all()  # the first of each class
    assert 0.05 < float(data.images.std()) < 0.5


def test_imagenet_pictures(shared_data: Path) -> None:
    data = load("imagenet", root=shared_data / "imagenette224_60.zip", limit=10)
    assert data.shape == (3, 224, 224)
    assert data.mean == (0.485, 0.456, 0.406)
    assert "tench" in data.class_names
    assert len(data.class_names) == 10
    few = load("imagenet", root=shared_data / "imagenet128_500.zip", classes=25, size=64, limit=30)
    assert few.targets.shape == (30, 25)
    assert few.shape == (3, 64, 64)
