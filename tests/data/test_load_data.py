"""The table of data sets and the way from a word on the command line to one of them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.data import DATASETS, Dataset, load
from gradveil.data.base import check_positive


@pytest.mark.parametrize("name", ["photos", "digits"])
def test_built_in_data_keeps_the_contract(name: str) -> None:
    data = load(name, limit=12)
    assert isinstance(data, Dataset)
    assert data.images.dtype == data.targets.dtype == torch.float32
    assert data.images.is_contiguous()
    assert torch.equal(data.targets.sum(1), torch.ones(12))
    assert data.targets.shape[1] == len(data.class_names)
    assert len(data.mean) == len(data.std) == data.shape[0]
    assert min(data.std) > 0


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("photo", {}, "data: unknown name 'photo', did you mean 'photos'"),
        ("photos", {"sise": 8}, "data photos: unknown name 'sise', did you mean 'size'"),
        ("image-folder", {}, "data image-folder: root is missing"),
        ("npz", {}, "data npz: path is missing"),
        ("no/such/folder", {}, "no/such/folder: no such folder, .zip or .npz file"),
        ("gone.npz", {}, "gone.npz: no such file"),
        ("gone.zip", {}, "gone.zip: no such folder or zip file"),
        ("utkface", {}, "data utkface: root is missing"),
    ],
)
def test_what_cannot_be_loaded(spec: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(spec, **options)


def test_a_file_that_is_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").write_text("x")
    with pytest.raises(ConfigError, match=r"notes: no such folder, \.zip or \.npz file"):
        load("notes")


def test_every_loader_has_a_summary_and_a_split() -> None:
    for name, loader in DATASETS.items():
        assert 0 < len((loader.__doc__ or "").splitlines()[0]) <= 120, name
        assert {"split", "limit"} <= set(inspect.signature(loader).parameters), name


@pytest.mark.parametrize("value", ["5", 2.5, 0, -3])
def test_counts_are_whole_and_positive(value: object) -> None:
    with pytest.raises(ConfigError, match=r"photos: limit is .* it must be a whole number of 1 or more"):
        check_positive("photos", size=3, count=None, limit=value)
