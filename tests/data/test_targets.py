"""Targets beyond one label: what tables and masks of an .npz and folders of masks become, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.data import load

PICTURES = np.random.default_rng(0).integers(0, 256, (5, 8, 6, 3), dtype=np.uint8)
NUMBERS = np.random.default_rng(1).normal(size=(5, 2)).astype(np.float32)
MASKS = np.random.default_rng(2).integers(0, 3, (5, 8, 6))


def save(folder: Path, labels: np.ndarray) -> str:
    np.savez(folder / "d.npz", images=PICTURES, labels=labels)
    return str(folder / "d.npz")


@pytest.mark.parametrize(
    ("labels", "shape", "loss"),
    [
        (NUMBERS, (2,), None),
        (NUMBERS[:, 0], (1,), None),
        (np.full((5, 4), 0.25), (4,), "cross-entropy"),
        ((NUMBERS > 0).astype(np.uint8) | [1, 0], (2,), "binary-cross-entropy"),
        (MASKS, (3, 8, 6), "cross-entropy"),
        (MASKS.astype(np.float64), (1, 8, 6), None),
        ((MASKS > 1).astype(np.float32), (1, 8, 6), "binary-cross-entropy"),
        (np.stack([MASKS == 0, MASKS > 0], 1), (2, 8, 6), "cross-entropy"),
    ],
)
def test_what_labels_become(labels: np.ndarray, shape: tuple[int, ...], loss: str | None, tmp_path: Path) -> None:
    data = load(save(tmp_path, labels))
    assert (tuple(data.targets.shape), data.loss) == ((5, *shape), loss)
    if shape == (3, 8, 6):
        assert data.targets.argmax(1).equal(torch.from_numpy(MASKS))
    elif loss is None:
        assert np.array_equal(data.targets.reshape(5, -1).numpy(), labels.reshape(5, -1).astype(np.float32))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (MASKS[:, :4], "expected masks of that size"),
        (MASKS[:4], "expected one row per image"),
        (np.where(NUMBERS > 0, np.nan, NUMBERS), "NaN or infinite"),
        (MASKS - 1, "expected whole numbers from 0"),
        (np.full((5, 2), 3), "every entry must be 0 or 1"),
        (np.array(list("abcde")), "expected class numbers or a table"),
        (np.zeros((5, 1, 1, 8, 6)), "expected one row per image"),
    ],
)
def test_labels_that_are_none(labels: np.ndarray, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load(save(tmp_path, labels))


def write_masks(folder: Path, palette: bool = False) -> tuple[str, str]:
    for name in ("pictures", "masks"):
        (folder / name).mkdir()
    for number, (picture, mask) in enumerate(zip(PICTURES, MASKS, strict=True)):
        Image.fromarray(picture).save(folder / f"pictures/{number}.jpg", quality=95)
        image = Image.fromarray((mask if palette else 100 * mask).astype(np.uint8))
        if palette:
            image.putpalette([0, 0, 0, 9, 9, 9, 255, 0, 0])
        image.save(folder / f"masks/{number}.png")
    return str(folder / "pictures"), str(folder / "masks")


@pytest.mark.parametrize("palette", [False, True])
def test_masks_beside_pictures(palette: bool, tmp_path: Path) -> None:
    pictures, masks = write_masks(tmp_path, palette)
    data = load(pictures, masks=masks)
    assert data.targets.argmax(1).equal(torch.from_numpy(MASKS))
    assert data.class_names == (("0", "1", "2") if palette else ("0", "100", "200"))
    assert data.loss == "cross-entropy"


def test_masks_are_cropped_with_their_pictures(tmp_path: Path) -> None:
    pictures, masks = write_masks(tmp_path)
    data = load(pictures, masks=masks, size=3, limit=2)
    assert data.images.shape == (2, 3, 3, 3)
    center = MASKS[:2, 1:7]
    assert data.targets.argmax(1).equal(torch.from_numpy(center[:, 1::2, 1::2]))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "masks/3.png").unlink(), "no mask for 3.jpg, give one 3.png"),
        (lambda folder: (folder / "masks/3.tif").write_bytes((folder / "masks/3.png").read_bytes()), "2 masks for 3"),
        (lambda folder: Image.fromarray(PICTURES[0]).save(folder / "masks/3.png"), "is a RGB picture"),
        (lambda folder: Image.fromarray(PICTURES[0, :4, :, 0]).save(folder / "masks/3.png"), "its picture has 6x8"),
        (lambda folder: (folder / "masks/3.png").write_bytes(b"nothing"), "not a picture in a known format"),
        (lambda folder: Image.effect_noise((6, 8), 80).save(folder / "masks/3.png"), None),
    ],
)
def test_masks_that_do_not_fit(harm, message: str | None, tmp_path: Path) -> None:
    pictures, masks = write_masks(tmp_path)
    harm(tmp_path)
    if message is None:  # a gray picture of 48 pixels is no more than 64 classes: taken as it is
        assert load(pictures, masks=masks).targets.shape[1] > 3
        return
    with pytest.raises(ConfigError, match=message):
        load(pictures, masks=masks)


def test_a_folder_of_pictures_alone_names_masks(tmp_path: Path) -> None:
    pictures, masks = write_masks(tmp_path)
    with pytest.raises(ConfigError, match="or give masks="):
        load(pictures)
    with pytest.raises(ConfigError, match="no such folder, give the folder of the masks"):
        load(pictures, masks=f"{masks}/nowhere")


def test_a_mask_does_not_lead_out(tmp_path: Path) -> None:
    pictures, masks = write_masks(tmp_path)
    (tmp_path / "elsewhere.png").write_bytes((tmp_path / "masks/3.png").read_bytes())
    (tmp_path / "masks/3.png").unlink()
    (tmp_path / "masks/3.png").symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(ConfigError, match="a link that leads out"):
        load(pictures, masks=masks)


@pytest.mark.parametrize("command", ["train", "tradeoff", "search"])
def test_what_measures_accuracy_refuses_numbers(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--data", save(tmp_path, NUMBERS), "--model", "mlp", "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    assert "its targets are masks or numbers, take pictures with classes" in capsys.readouterr().err
