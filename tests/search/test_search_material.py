"""Nobody is in two places: scored, attacked and training pictures are disjoint, and classes come in turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gradveil.config import ScenarioConfig
from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.data import load
from gradveil.data.draw import draw_rows
from gradveil.search.context import SearchSplit, evenly, split_pictures
from gradveil.search.scoring import draw_circumstances
from gradveil.search.search import search
from gradveil.search.settings import SearchSettings


@pytest.fixture
def sorted_by_class(tmp_path: Path) -> str:
    """Sixty pictures, each of one gray level, in the order of their three classes."""
    levels = np.arange(60, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "d.npz", images=levels, labels=np.repeat(np.arange(3), 20))
    return str(tmp_path / "d.npz")


def gathered(data: str, **changes) -> SearchSplit:
    dataset = load(data)
    settings = {"images": 12, "attacked": 5, "rounds": 3, "share": 0.5, "seed": Seed(0), **changes}
    return split_pictures(ScenarioConfig(data=data), dataset, **settings)


def levels(images: torch.Tensor) -> set[int]:
    return set((images[:, 0, 0, 0] * 255).round().int().tolist())


def test_the_parts_are_disjoint(sorted_by_class: str) -> None:
    found = gathered(sorted_by_class)
    scored, attacked, trained = (levels(x.images) for x in (found.scored, found.attacked, found.training))
    assert attacked == set(draw_rows(60, Seed(0))[:5]) == set(found.victims)
    assert len(scored) == 12
    assert not scored & attacked
    assert not trained & (scored | attacked)
    assert not levels(found.gallery) & (scored | attacked)
    assert scored == set(found.places)


def test_scored_pictures_are_the_last_of_every_class(sorted_by_class: str) -> None:
    found = gathered(sorted_by_class)
    assert found.scored.labels.sum(0).tolist() == [4, 4, 4]
    left = [[row for row in range(first, first + 20) if row not in found.victims] for first in (0, 20, 40)]
    assert set(found.places) == {row for rows in left for row in rows[-4:]}


def test_a_round_has_one_picture_of_each_class(sorted_by_class: str) -> None:
    found = gathered(sorted_by_class)
    for batch, places in found.rounds:
        assert batch.labels.sum(0).tolist() == [1, 1, 1]
        assert levels(batch.images) == set(places)
        assert not set(places) & set(found.victims)


def test_a_training_split_is_used_where_there_is_one() -> None:
    config = ScenarioConfig(data="photos", data_options={"count": 40, "size": 8})
    dataset = load("photos", count=40, size=8)
    found = split_pictures(config, dataset, images=8, attacked=4, rounds=1, share=0.2, seed=Seed(0))
    train = load("photos", count=40, size=8, split="train")
    assert torch.equal(found.training.images, train.images[:8])


def test_places_come_class_by_class_in_turn() -> None:
    targets = torch.eye(3)[torch.tensor([0, 0, 0, 1, 2, 1])]
    assert evenly(targets) == [0, 3, 4, 1, 5, 2]


def test_what_happens_to_a_picture_does_not_depend_on_the_others(sorted_by_class: str) -> None:
    found = gathered(sorted_by_class)
    all_of_them = draw_circumstances(found.scored, found.places, 3, True, Seed(0))
    last = draw_circumstances(type(found.scored)(*(x[-2:] for x in found.scored)), found.places[-2:], 2, True, Seed(0))
    assert torch.equal(all_of_them.images[-2:], last.images)
    assert torch.equal(all_of_them.starts[-2:], last.starts)
    assert torch.equal(all_of_them.luck[-2:, :3], last.luck)


def test_pictures_of_several_classes_are_refused(tmp_path: Path) -> None:
    labels = np.zeros((30, 4), np.float32)
    labels[:, :2] = 1
    np.savez(tmp_path / "m.npz", images=np.zeros((30, 8, 8, 3), np.uint8), labels=labels)
    with pytest.raises(ConfigError, match=r"data: .* one class each"):
        search(SearchSettings(data=str(tmp_path / "m.npz"), confirm=0, images=4), tmp_path / "run")
    assert not (tmp_path / "run").exists()
