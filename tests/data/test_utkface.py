"""Faces: attributes by file name, and a split that no name can bend."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_files import png, zipped

from gradveil.config import AuditConfig, ScenarioConfig, build
from gradveil.core.errors import ConfigError
from gradveil.data import load
from gradveil.data.utkface import ATTRIBUTES


def faces(path: Path, count: int = 40) -> Path:
    names = [f"{3 * k}_{k % 2}_{k % 5}_2017010{k % 9}{k:09d}.jpg.chip.jpg" for k in range(count)]
    return zipped(path, {name: png(k) for k, name in enumerate(names)})


def test_attributes_are_read_off_the_names(tmp_path: Path) -> None:
    members = {"44_1_2_20170112213615815.jpg.chip.jpg": png(1), "60_0_4_20170112213615817.jpg": png(2)}
    data = load("utkface", root=zipped(tmp_path / "a.zip", members), split="train", size=4)
    held = {
        round(255 * float(image[0, 0, 0])): [name for name, one in zip(ATTRIBUTES, row, strict=True) if one]
        for image, row in zip(data.images, data.targets, strict=True)
    }
    assert held[1] == ["female", "15 or older", "30 or older", "asian"]
    assert held[2] == ["15 or older", "30 or older", "45 or older", "60 or older", "other group"]
    with pytest.raises(ConfigError, match="no face for the test split among 2"):
        load("utkface", root=tmp_path / "a.zip", size=4)


def test_splits_are_disjoint_and_whole_and_do_not_depend_on_others(tmp_path: Path) -> None:
    more, fewer = faces(tmp_path / "more.zip", 80), faces(tmp_path / "fewer.zip", 40)

    def reds(root: Path, split: str) -> list[int]:
        return (load("utkface", root=root, split=split, size=4).images[:, 0, 0, 0] * 255).round().int().tolist()

    test, train = reds(more, "test"), reds(more, "train")
    assert sorted(test + train) == list(range(80))
    assert 5 < len(test) < 30
    assert test != sorted(test)  # not by age
    assert [red for red in test if red < 40] == reds(fewer, "test")


@pytest.mark.parametrize(
    "name", ["44_1_20170112213615815.jpg", "44_2_1_2017.jpg", "44_1_5_2017.jpg", "face.png", "1_0_0_2017.txt.jpg"]
)
def test_other_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="not a name like age_gender_group_date"):
        load("utkface", root=zipped(tmp_path / "a.zip", {name: png()}))


def config(root: Path, **changes) -> AuditConfig:
    options = {"root": str(root), "size": 8, "split": "train"}
    return AuditConfig(scenario=ScenarioConfig(data="utkface", data_options=options, images=2, **changes))


def test_an_audit_takes_the_loss_that_several_labels_need(tmp_path: Path) -> None:
    root = faces(tmp_path / "a.zip")
    audit = build(config(root))
    assert audit.scenario.training.loss == "binary-cross-entropy"
    assert audit.settings["scenario"]["loss"] == "binary-cross-entropy"  # what is written says what is run
    assert (audit.scenario.private.labels.sum(-1) > 1).any()
    assert build(config(root, loss="binary-cross-entropy")).scenario.training.loss == "binary-cross-entropy"
    with pytest.raises(ConfigError, match=r"scenario\.loss: utkface has several labels per picture"):
        build(config(root, loss="cross-entropy"))


def test_an_audit_of_one_label_takes_cross_entropy() -> None:
    audit = build(AuditConfig(scenario=ScenarioConfig(data="digits", images=2, data_options={"size": 8})))
    assert audit.scenario.training.loss == "cross-entropy"
    assert audit.settings["scenario"]["loss"] == "cross-entropy"


def test_real_faces(shared_data: Path) -> None:
    data = load("utkface", root=shared_data / "utkface200_2000.zip", limit=40)
    assert data.shape == (3, 112, 112)
    assert data.targets.shape == (40, 10)
    assert torch.equal(data.targets[:, 5:].sum(1), torch.ones(40))  # one group holds
    assert (data.targets[:, 1:4] >= data.targets[:, 2:5]).all()  # who is over 30 is over 15
    assert 0.3 < float(data.targets[:, 0].mean()) < 0.7
