"""A single-layer model: its pictures are read off the rows of their labels, and solved for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, MEAN, STD, perceptron, scene, seen_in, smooth
from torch import Tensor, nn

from gradveil.attacks.linear_model import linear_model
from gradveil.core.attack import Reconstruction
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import LocalTraining, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from


def logistic(bias: bool = True, reach: float = 1.0) -> nn.Module:
    with weights_from(0):
        layer = nn.Linear(192, CLASSES, bias=bias)
    layer.weight.data *= reach
    return nn.Sequential(Normalize(MEAN, STD), nn.Flatten(), layer).double()


def attacked(scenario: Scenario, refine: int = 200) -> Reconstruction:
    return linear_model(refine=refine).reconstruct(seen_in(scenario), Seed(0))


def scored(got: Reconstruction, scenario: Scenario) -> Tensor:
    """Pictures come in the order of the labels that were given."""
    return peak_signal_to_noise(got.images, scenario.private.images)


def test_one_picture_is_exact_as_published() -> None:
    scenario = scene(logistic(), 3, 1)
    assert (scored(attacked(scenario, refine=0), scenario) > 150).all()


@pytest.mark.parametrize("examples", [2, 4])
def test_unique_labels_are_read_exactly_once_the_others_share_is_solved_for(examples: int) -> None:
    scenario = scene(logistic(), 2, examples)
    plain, solved = attacked(scenario, refine=0), attacked(scenario)
    assert (scored(solved, scenario) > 150).all()
    assert scored(plain, scenario).median() < 40
    assert (solved.loss < 1e-9).all()
    assert (plain.loss > 1e-3).all()


def test_where_the_model_is_blind_to_pictures_one_solution_is_enough() -> None:
    """With weights of zero the pushes do not depend on the pictures, as a dishonest server could arrange."""
    scenario = scene(logistic(reach=0.0), 2, 4)
    assert (scored(attacked(scenario, refine=2), scenario) > 150).all()


def test_rate_and_binary_cross_entropy() -> None:
    for training in (LocalTraining(rate=0.1), LocalTraining(loss="binary-cross-entropy")):
        scenario = scene(logistic(), 2, 3, training=training)
        assert (scored(attacked(scenario), scenario) > 150).all()


def test_hidden_labels_are_read_from_the_same_layer() -> None:
    scenario = scene(logistic(), 2, 1, threat=ThreatModel(knows_labels=False))
    got = attacked(scenario)
    assert torch.equal(got.labels, scenario.private.labels)
    assert (scored(got, scenario) > 150).all()


def test_of_repeated_labels_one_is_found_and_it_is_said() -> None:
    scenario = scene(logistic(), 1, 3)
    labels = scenario.private.labels[:, [0, 0, 1]]
    got = attacked(replace(scenario, private=Batch(scenario.private.images, labels)))
    assert got.found.tolist() == [[True, False, True]]
    assert "labels repeat" in got.notes[0]


def test_a_broken_update_fails_alone() -> None:
    seen = seen_in(scene(logistic(), 2, 2))
    seen.update["2.weight"][0, 0, 0] = torch.nan
    got = linear_model().reconstruct(seen, Seed(0))
    assert got.loss.isfinite().tolist() == [False, True]


def test_more_than_one_layer_is_refused() -> None:
    for model, why in ((perceptron(), "more than one linear layer"), (smooth(), "sees features")):
        with pytest.raises(NotApplicableError, match=why):
            linear_model().check(seen_in(scene(model)))
    with pytest.raises(NotApplicableError, match="bias"):
        linear_model().check(seen_in(scene(logistic(bias=False))))


def test_out_of_range() -> None:
    with pytest.raises(ConfigError, match="refine"):
        linear_model(refine=-1)
