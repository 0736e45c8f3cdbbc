"""Labels that are searched for beside the pictures, and the score that says how right they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, four_pictures, one_picture, scene, seen_in, several_labels, smooth, usual

from gradveil.attacks.dlg import dlg, dlg_joint
from gradveil.audit.plan import Cell
from gradveil.audit.score import Judge
from gradveil.audit.trial import run_cell
from gradveil.core.attack import Attack
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.engine.backend import choose
from gradveil.engine.distance import L2, Cosine
from gradveil.engine.matcher import Loop, NoMatch, OneTrial, Vmap
from gradveil.engine.spaces.joint_labels import JointLabels
from gradveil.engine.spaces.space import Pixels
from gradveil.metrics import METRICS
from gradveil.metrics.labels import labels_right
from gradveil.metrics.psnr import peak_signal_to_noise

DOUBLE = Compute(precision="float64")
HIDDEN = ThreatModel(knows_labels=False)


def hidden(scenario: Scenario) -> Scenario:
    return replace(scenario, threat=HIDDEN)


def photographs(clients: int = 3, examples: int = 1) -> Scenario:
    pictures = photos(size=8, limit=clients * examples).images.double().view(clients, examples, 3, 8, 8)
    scenario = hidden(scene(smooth(), clients, examples))
    return replace(scenario, private=Batch(pictures, scenario.private.labels))


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.mark.parametrize("distance", [Cosine(), L2(relative=True)])
def test_both_back_ends_give_the_gradient_by_pictures_and_labels(distance) -> None:
    seen = seen_in(hidden(four_pictures(2)))
    one = OneTrial.of(seen, distance)
    fed, labels = drawn(2, 4, 3, 8, 8), drawn(2, 4, CLASSES).softmax(-1)
    expected = Loop(one).joint(fed, labels)
    for got, wanted in zip(Vmap(one).joint(fed, labels), expected, strict=True):
        assert (got - wanted).norm() < 1e-9 * wanted.norm()
    step, toward = 1e-6, drawn(2, 4, CLASSES)
    ahead, behind = (Loop(one).joint(fed, labels + sign * step * toward)[0] for sign in (1, -1))
    slope = (expected[2] * toward).flatten(1).sum(1)
    assert torch.allclose((ahead - behind) / (2 * step), slope, rtol=1e-4)


def test_with_the_right_labels_the_joint_match_is_the_match() -> None:
    seen = seen_in(four_pictures(2))
    assert seen.labels is not None
    one, fed = OneTrial.of(seen, L2()), drawn(2, 4, 3, 8, 8)
    for matcher in (Loop(one), Vmap(one)):
        value, slope = matcher(fed)
        same, by_pictures, _ = matcher.joint(fed, seen.labels)
        assert torch.equal(value, same)
        assert torch.allclose(slope, by_pictures, rtol=1e-12)


def test_pictures_and_labels_of_one_picture_are_found() -> None:
    scenario = photographs()
    got = dlg_joint(steps=150, restarts=1).reconstruct(seen_in(scenario), Seed(0), DOUBLE)
    assert torch.equal(got.labels, scenario.private.labels)
    assert peak_signal_to_noise(got.images, scenario.private.images).min() > 30
    assert got.backend == "vmap"
    assert any("labels fixed" in note for note in got.notes)


def test_a_batch_whose_labels_the_head_does_not_tell() -> None:
    """The head is frozen, so nothing can be read off it; the search finds the labels all the same."""
    scenario = photographs(examples=2)
    scenario.model[-1].requires_grad_(False)  # type: ignore[index]
    got = dlg_joint(steps=150, restarts=2).reconstruct(seen_in(scenario), Seed(0), DOUBLE)
    assert labels_right(got.labels, scenario.private.labels).mean() > 0.8


def test_one_who_is_given_the_labels_runs_dlg() -> None:
    seen = seen_in(replace(photographs(), threat=ThreatModel()))
    got, plain = (a(steps=20, restarts=2).reconstruct(seen, Seed(0), DOUBLE) for a in (dlg_joint, dlg))
    assert torch.equal(got.images, plain.images)
    assert got.backend == "sweep"


def test_any_chunk_and_back_end_gives_the_same() -> None:
    seen, attack = seen_in(photographs()), dlg_joint(steps=12, restarts=2)
    expected = attack.reconstruct(seen, Seed(0), DOUBLE)
    for compute in (replace(DOUBLE, chunk=1), replace(DOUBLE, chunk=4), replace(DOUBLE, backend="loop")):
        got = attack.reconstruct(seen, Seed(0), compute)
        assert (got.images - expected.images).abs().max() < 1e-9
        assert torch.equal(got.labels, expected.labels)


def test_the_sweep_refuses_by_name() -> None:
    with pytest.raises(ConfigError, match=r"backend: sweep cannot run this: .* labels fixed"):
        choose(seen_in(hidden(one_picture(1))), L2(), "sweep")


def test_several_labels_at_once_are_sigmoids() -> None:
    seen = seen_in(hidden(several_labels(2)))
    space = JointLabels(Pixels()).bind(seen)
    z = {"labels": torch.tensor([[[-1.0, 2.0, 0.5, -3.0, 1.0]]])}
    assert torch.equal(space.labels(z), z["labels"].sigmoid())  # type: ignore[attr-defined]
    assert space.reveal_labels(z).tolist() == [[[0, 1, 1, 0, 1]]]  # type: ignore[attr-defined]


def test_without_the_update_only_the_start_decides() -> None:
    seen = seen_in(photographs())
    got = dlg_joint(steps=5, restarts=1).prior_only().reconstruct(seen, Seed(0), DOUBLE)
    assert got.backend == "priors"
    assert (got.labels.sum(-1) == 1).all()
    value, slope, by_labels = NoMatch().joint(drawn(2, 1, 3, 8, 8), drawn(2, 1, 5))
    assert not any(x.any() for x in (value, slope, by_labels))


# the score


def test_the_share_of_right_labels_by_hand() -> None:
    truth = torch.eye(4)[torch.tensor([[0, 0, 1], [1, 2, 3]])]
    got = torch.eye(4)[torch.tensor([[0, 1, 0], [0, 2, 2]])]
    assert labels_right(got, truth).tolist() == pytest.approx([1, 1 / 3])


def test_a_label_too_many_is_as_wrong_as_one_too_few() -> None:
    truth = torch.tensor([[[1.0, 1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0]]])
    assert labels_right(truth.flip(0), truth).tolist() == [0.5, 0.5]


def records(attack: Attack, scenario: Scenario) -> list:
    judge = Judge((METRICS["psnr"](),), torch.full((3, 1, 1), 0.5))
    cell = Cell(scenario=scenario, label="none", defense=Defense(), attack="dlg", method=attack, seed=Seed(0),
                compute=DOUBLE, compared=False)  # fmt: skip
    return [record for trial in run_cell(cell, judge) for record in trial.records]


@pytest.mark.parametrize("attack", [dlg(steps=2), dlg_joint(steps=60, restarts=1)])
def test_a_record_says_how_right_the_labels_were_if_they_were_not_given(attack: Attack) -> None:
    found = records(attack, photographs(2))
    assert [record.scores["labels"] for record in found] == [1, 1]
    assert all("labels" not in r.scores for r in records(attack, replace(photographs(2), threat=ThreatModel())))


def test_every_picture_of_a_batch_carries_the_share_of_its_batch() -> None:
    labels = torch.eye(CLASSES).double()[torch.tensor([[3, 3, 3, 3], [0, 1, 2, 3]])]
    scenario = hidden(scene(usual(), 2, 4, labels=labels))
    wrong = replace(dlg(steps=1), infer_labels=lambda seen: labels[:1].expand(2, -1, -1))
    assert [record.scores["labels"] for record in records(wrong, scenario)] == [1, 1, 1, 1, 0.25, 0.25, 0.25, 0.25]
