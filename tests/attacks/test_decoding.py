"""Decoding of mixed pictures: exact where the system is determined, and far better than not knowing where it is not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from scenes import CLASSES, MEAN, STD, Onlooker, drawn, four_pictures, scene, seen_in, smooth
from torch import Tensor

from gradveil.attacks.decode_carlini import decode_carlini
from gradveil.attacks.decode_known import decode_known
from gradveil.attacks.decoding.clusters import assign_weights, cluster, pictures_by_class, refine
from gradveil.attacks.decoding.leak import side_by_side
from gradveil.attacks.decoding.regression import agree_on_signs, descend, misfit_of, solve, solve_without_signs
from gradveil.attacks.decoding.same_source import PAIRS, SameSource, draw_pairs, logits_of_all_pairs, train
from gradveil.attacks.dlg import dlg
from gradveil.audit.plan import Grid
from gradveil.config import from_tables
from gradveil.core.attack import Attack
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.data.photos import photos
from gradveil.defenses._mixing import draw_inside, draw_weights
from gradveil.defenses.instahide import instahide
from gradveil.defenses.mixup import Mixup
from gradveil.metrics import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.lenet import lenet

DOUBLE = Compute(precision="float64")
SHAPE = (3, 8, 8)


def weights_of(rows: int, pictures: int, k: int) -> Tensor:
    """Rounds of mixing inside a client."""
    rng = Seed(1).rng()
    each = []
    while sum(map(len, each)) < rows:
        chosen, drawn_ = draw_inside(pictures, k, rng), draw_weights(pictures, k, 0.65, rng)
        each.append(torch.zeros(pictures, pictures, dtype=torch.float64).scatter_(1, chosen, drawn_))
    return torch.cat(each)[:rows]


@cache
def pictures_of_all() -> Dataset:
    return photos(size=8, limit=400)


def photographs(count: int, classes: int) -> tuple[Tensor, Tensor]:
    """So many of each class, and their labels."""
    data = pictures_of_all()
    kinds = data.targets.argmax(1)
    at = torch.cat([(kinds == kind).nonzero().flatten()[2 : 2 + count // classes] for kind in range(classes)])
    return data.images[at].double(), data.targets[at].double()


def mixing_scene(count: int, classes: int, rounds: int, **granted: Any) -> Scenario:
    """One client whose pictures are photographs, and public ones of which it has none."""
    images, labels = photographs(count, classes)
    public = pictures_of_all()
    model = lenet(classes=labels.shape[1], shape=SHAPE, mean=MEAN, std=STD).double()
    threat = ThreatModel(knows_defense=True, rounds=rounds, **granted)
    return Scenario(
        name="mixed",
        model=model,
        private=Batch(images.unsqueeze(0), labels.unsqueeze(0)),
        names=("client",),
        threat=threat,
        public=Batch(public.images[-200:].double(), public.targets[-200:].double()),
    )


def decoded(scenario: Scenario, defense: Defense, attack: Attack) -> Tensor:
    """dB of every picture."""
    seen, truth = observe(scenario, defense, attack, Seed(0))
    got = attack.reconstruct(seen, Seed(0), DOUBLE)
    found = align(got.images, truth.private.images, got.found).images
    return peak_signal_to_noise(found, truth.private.images)[0]


# linear algebra


@pytest.mark.parametrize("rows", [4, 12])
def test_least_squares_undoes_mixing_exactly_where_it_is_determined(rows: int) -> None:
    pictures, weights = 2 * drawn(4, 50) - 1, weights_of(rows, 4, 4)
    assert torch.allclose(solve(weights, weights @ pictures), pictures, atol=1e-9)


def test_what_the_weights_do_not_tell_stays_gray() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    pictures = solve(weights, torch.tensor([[0.8]], dtype=torch.float64))
    assert torch.allclose(pictures, torch.tensor([[0.8], [0.8], [0.0]], dtype=torch.float64))


def test_sizes_alone_tell_the_pictures_up_to_a_sign_per_pixel() -> None:
    pictures, weights = 2 * drawn(4, 60) - 1, weights_of(24, 4, 3)
    nothing = torch.zeros(24, 60, dtype=torch.float64)
    got = solve_without_signs(weights, nothing, (weights @ pictures).abs(), Seed(0))
    sign = (got * pictures).sum(0).sign()
    assert torch.allclose(sign * got, pictures, atol=1e-8)


def test_a_known_offset_tells_the_sign_too() -> None:
    pictures, weights = 2 * drawn(4, 60) - 1, weights_of(24, 4, 3)
    offset = drawn(24, 60, seed=5) - 0.5
    got = solve_without_signs(weights, offset, (weights @ pictures + offset).abs(), Seed(0))
    assert torch.allclose(got, pictures, atol=1e-8)


def test_neighbors_tell_the_signs() -> None:
    pictures = 2 * photographs(6, 6)[0] - 1
    flips = torch.where(drawn(*SHAPE, seed=3) < 0.5, -1.0, 1.0).double()
    public = pictures_of_all().images[-200:].double()
    error = (agree_on_signs(flips * pictures, public) - pictures).square().mean((1, 2, 3))
    assert (error < 0.01 * pictures.square().mean((1, 2, 3))).all()


def test_smoothness_helps_where_encodings_are_noisy() -> None:
    pictures, weights = 2 * photographs(4, 4)[0] - 1, weights_of(8, 4, 4)
    noisy = torch.einsum("es,schw->echw", weights, pictures) + 0.1 * (drawn(8, *SHAPE) - 0.5)
    plain = solve(weights, noisy.flatten(1)).view_as(pictures)
    smooth_ = descend(plain, misfit_of(weights, torch.zeros_like(noisy), noisy, flipped=False), 3e-3, steps=200)
    assert (smooth_ - pictures).square().mean() < 0.8 * (plain - pictures).square().mean()


# which picture is where


def test_a_label_tells_the_weight_of_the_only_picture_of_its_class() -> None:
    weights, labels = weights_of(12, 4, 3), torch.eye(4, dtype=torch.float64)
    assert torch.allclose(assign_weights(weights @ labels, 4, None, Seed(0)), weights)


def test_classes_are_counted_by_their_share_of_the_labels() -> None:
    kinds = torch.nn.functional.one_hot(torch.tensor([0, 0, 0, 2, 2, 4]), CLASSES).double()
    assert pictures_by_class(weights_of(120, 6, 3) @ kinds, 6) == [3, 0, 2, 0, 1]


def test_clusters_are_found_whatever_their_order() -> None:
    inside = torch.arange(30) % 3
    similarity = (inside.unsqueeze(0) == inside.unsqueeze(1)).double() + 0.5 * drawn(30, 30)
    got = cluster((similarity + similarity.T) / 2, 3, Seed(0))
    pairs = set(zip(inside.tolist(), got.tolist(), strict=True))
    assert len(pairs) == 3
    assert len({there for _, there in pairs}) == 3


def test_weights_are_refined_to_the_right_picture_of_a_class() -> None:
    pictures = 2 * photographs(4, 2)[0].flatten(1) - 1
    kinds = torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1]), 2).double()
    weights = weights_of(40, 4, 2)
    labels = weights @ kinds
    apart = weights.clone()
    apart[::7, :2] = apart[::7, :2].flip(1)  # every seventh is put on the other picture of its class
    got = refine(apart, weights @ pictures, labels, lambda _: pictures, flipped=False, turns=3)
    whole = (weights[:, :2] > 0).sum(1) == 1  # else the split is on a grid
    assert torch.allclose(got[whole][:, :2], weights[whole][:, :2])


# the network


def test_pairs_that_share_a_picture_are_half_of_them() -> None:
    public = 2 * drawn(40, *SHAPE).float() - 1
    sizes, shared = draw_pairs(public, instahide(k=2), Seed(0).rng())
    assert sizes.shape == (PAIRS, 6, 8, 8)
    assert shared.mean() == 0.5
    assert sizes.min() >= 0
    assert draw_pairs(public, Mixup(k=2), Seed(0).rng())[0].min() < 0


def test_the_network_says_the_same_of_both_orders_and_learns_who_shares() -> None:
    public = 2 * pictures_of_all().images[-200:] - 1
    net = train(public, instahide(k=2), 200, Seed(0))
    others = 2 * pictures_of_all().images[:200] - 1
    draws = [draw_pairs(others, instahide(k=2), Seed(seed).rng()) for seed in range(5)]
    pairs, shared = (torch.cat(parts) for parts in zip(*draws, strict=True))
    with torch.no_grad():
        said = net(pairs)
        assert torch.allclose(said, net(torch.cat(pairs.chunk(2, 1)[::-1], 1)), atol=1e-5)
    assert ((said > said.median()) == (shared == 1)).float().mean() > 0.7


def test_all_pairs_are_compared_once() -> None:
    table = logits_of_all_pairs(SameSource(3), drawn(7, *SHAPE).float())
    assert torch.equal(table, table.T)
    assert (table.diagonal() == 0).all()


# end to end


def test_mixup_is_undone_exactly_from_its_encodings() -> None:
    scenario = mixing_scene(4, 4, rounds=1, sees_encodings=True)
    assert decoded(scenario, Mixup(k=4), decode_known(leak="encoding")).min() > 150


@pytest.mark.parametrize("partners", ["inside", "cross"])
def test_instahide_is_undone_from_the_sizes_of_several_rounds(partners: Any) -> None:
    scenario = mixing_scene(4, 4, rounds=8, sees_encodings=True)
    assert decoded(scenario, instahide(partners=partners), decode_known(leak="encoding")).mean() > 30


@pytest.mark.more
def test_mixup_falls_to_the_updates_of_a_few_rounds_where_the_unaware_attack_fails() -> None:
    scenario, attack = mixing_scene(4, 4, rounds=4), decode_known(steps=160)
    unaware = replace(scenario, threat=ThreatModel())
    assert decoded(unaware, Mixup(k=4), dlg(steps=160)).mean() < 18
    assert decoded(scenario, Mixup(k=4), attack).mean() > 25


@pytest.mark.parametrize("defense", [Mixup(k=4), instahide(k=4)], ids=["mixup", "instahide"])
def test_nobody_needs_to_tell_the_weights_where_there_are_many_encodings(defense: Defense) -> None:
    scenario = mixing_scene(8, 4, rounds=20, sees_encodings=True)
    attack = decode_carlini(leak="encoding", similarity="pixels")
    assert decoded(scenario, defense, attack).mean() > 25


def test_the_network_takes_the_whole_way() -> None:
    scenario = mixing_scene(6, 3, rounds=12, sees_encodings=True)
    attack = decode_carlini(leak="encoding", similarity="network", training=60, turns=5)
    assert decoded(scenario, instahide(k=3), attack).mean() > 20


def test_rounds_of_one_mixture_tell_no_more_than_one_and_a_note_says_so() -> None:
    attack, scenario = decode_known(leak="encoding"), mixing_scene(4, 4, rounds=4, sees_encodings=True)
    fixed = instahide(k=4, pairs="fixed", signs="fixed")
    assert decoded(scenario, instahide(k=4), attack).mean() > 60
    assert decoded(scenario, fixed, attack).mean() < 30  # any signs of four encodings fit four pictures
    seen = observe(mixing_scene(4, 4, rounds=2, sees_encodings=True), fixed, attack, Seed(0))[0]
    assert any("same mixtures" in note for note in attack.reconstruct(seen, Seed(0), DOUBLE).notes)


# what it sees and what it refuses


def test_rounds_are_laid_side_by_side() -> None:
    scenario = replace(four_pictures(2), threat=ThreatModel(knows_defense=True, rounds=3))
    seen = seen_in(scenario, Mixup(k=3))
    flat = side_by_side(seen)
    assert len(set(flat.names)) == 6
    assert flat.history == ()
    for number, one in enumerate((*seen.history, seen)):
        here = flat.take([2 * number, 2 * number + 1])
        assert all(torch.equal(here.update[name], u) for name, u in one.update.items())
        assert torch.equal(here.labels, one.labels)  # type: ignore[arg-type]


REFUSED = {
    "sees updates and no encodings": (decode_known(leak="encoding"), {"knows_defense": True}),
    "knows of nothing that was mixed": (decode_known(), {}),
    "grant them with `labels = known`": (
        decode_known(leak="encoding"),
        {"knows_defense": True, "sees_encodings": True, "knows_labels": False},
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_decoded_is_refused_in_one_line(said: str) -> None:
    attack, granted = REFUSED[said]
    scenario = scene(smooth(), 1, 2, threat=ThreatModel(**granted))
    with pytest.raises(NotApplicableError, match=said) as caught:
        attack.reconstruct(observe(scenario, Mixup(k=2), Onlooker(), Seed(0))[0], Seed(0), DOUBLE)
    assert "\n" not in str(caught.value)


def test_a_network_without_public_pictures_is_refused() -> None:
    scenario = replace(mixing_scene(4, 2, rounds=2, sees_encodings=True), public=None)
    with pytest.raises(NotApplicableError, match="needs 8 of them"):
        decoded(scenario, Mixup(k=4), decode_carlini(leak="encoding"))


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="smooth"):
        decode_known(smooth=-1.0)
    with pytest.raises(ConfigError, match="turns"):
        decode_carlini(turns=-1)


# in an audit


def test_autoattack_runs_the_decoder_of_a_defense_that_mixes_and_of_no_other() -> None:
    mixing = from_tables({"defense": {"mixup": {"name": "mixup", "k": 2}}, "scenario": {"batch_size": 2}})
    assert list(mixing.attack)[-1] == "decode-known"
    assert "decode-known" not in from_tables({}).attack
    stacked = {"name": "stack", "of": [{"name": "gaussian"}, {"name": "mixup"}]}
    assert "decode-known" in from_tables({"defense": {"both": stacked}}).attack


def test_a_decoder_meets_the_knowing_attacker_alone_and_is_its_inner_attack_where_nothing_is_mixed() -> None:
    defenses, attack = {"none": Defense(), "mixup": Mixup(k=2)}, decode_known(steps=5)
    grid = Grid(defenses=defenses, attacks={"decode-known": attack}, seed=Seed(0), compute=DOUBLE)
    cells = [cell for group in grid.cells(four_pictures()) for cell in group]
    assert [(cell.label, cell.attacker) for cell in cells] == [("none", "unaware"), ("mixup", "adaptive")]
    assert cells[0].method == attack.inner
    assert not cells[1].repeats
