"""Line-ups of clients that train with Adam, shuffle their pictures or drop units."""

from __future__ import annotations

import pytest
import torch
from rooms import hold, trials_of
from torch import nn
from toys import CLASSES, SHAPE

from gradveil.core.scenario import LocalTraining
from gradveil.models.start import weights_from


def dropping() -> nn.Module:
    with weights_from(0):
        inputs = torch.zeros(1, *SHAPE).numel()
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, CLASSES))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "adagrad"])
def test_an_adaptive_optimizer_hides_no_picture(optimizer) -> None:
    found = hold(examples=4, clients=2, training=LocalTraining(optimizer=optimizer, steps=3, rate=1e-3), standins=2)
    assert {one.kind for one in found} == {"exact"}
    assert trials_of(found) == [1] * len(trials_of(found))
    assert all(one.fits and one.replayed for one in found)


def test_an_unknown_order_is_granted_so_the_share_is_a_bound() -> None:
    training = LocalTraining(optimizer="adam", epochs=2, batch_size=2, rate=1e-3, order="unknown")
    found = hold(examples=4, clients=2, training=training, standins=2)
    assert {one.kind for one in found} == {"bound"}
    assert trials_of(found) == [1] * len(trials_of(found))


def test_crops_are_granted_so_the_share_is_a_bound() -> None:
    found = hold(examples=2, clients=2, training=LocalTraining(augment="crop-flip", rate=0.1), standins=2)
    assert {one.kind for one in found} == {"bound"}
    assert sum(rank == 1 for rank in trials_of(found)) >= 10  # of 12; a crop can hide what tells two apart


def test_dropout_is_simulated_so_the_share_is_an_estimate() -> None:
    training = LocalTraining(dropout="on", rate=0.1)
    found = hold(model=dropping(), training=training, standins=3)
    assert {one.kind for one in found} == {"estimated"}
    ranks = trials_of(found)
    assert len(ranks) == 16
    assert sum(rank == 1 for rank in ranks) > 4  # of 20 candidates guessing names one in twenty
