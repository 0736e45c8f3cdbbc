"""Mixup and InstaHide: weights, labels, flips, partners, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from scenes import CLASSES, SHAPE, Onlooker, drawn, four_pictures, one_hot, scene, seen_in, smooth

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.defenses._mixing import Mixing, draw_inside, draw_weights
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.instahide import LEAST, InstaHide, instahide
from gradveil.defenses.mixup import Mixup
from gradveil.defenses.stack import Stack
from gradveil.train.client import round_data
from gradveil.train.settings import Federation


def data(count: int = 6) -> Batch:
    return Batch(drawn(count, *SHAPE), one_hot(1, count)[0])


def bound_to_public(defense: InstaHide, public: int = 9, count: int = 6) -> InstaHide:
    return defense.bind(with_public(public, count))


def with_public(public: int, count: int = 6) -> Scenario:
    return replace(scene(smooth(), 2, count), public=Batch(drawn(public, *SHAPE, seed=7), drawn(public, CLASSES)))


@pytest.mark.parametrize(("k", "bound"), [(1, 0.65), (2, 0.65), (4, 0.65), (4, 0.35), (6, 0.65)])
def test_weights_are_positive_sum_to_one_and_keep_the_bound(k: int, bound: float) -> None:
    weights = draw_weights(500, k, bound, Seed(0).rng())
    assert weights.shape == (500, k)
    assert torch.allclose(weights.sum(1), torch.ones(500, dtype=weights.dtype))
    assert (weights > 0).all()
    assert k == 1 or weights.max() <= bound


def test_the_first_two_weights_can_be_given_a_least_sum() -> None:
    assert draw_weights(500, 6, 0.65, Seed(0).rng(), LEAST)[:, :2].sum(1).min() >= LEAST
    assert draw_weights(500, 6, 0.65, Seed(0).rng())[:, :2].sum(1).min() < LEAST


def test_partners_are_distinct_and_a_picture_is_its_own_first() -> None:
    chosen = draw_inside(9, 4, Seed(0).rng())
    assert torch.equal(chosen[:, 0], torch.arange(9))
    assert all(len(set(row)) == 4 for row in chosen.tolist())


@pytest.mark.parametrize("defense", [Mixup(k=4), InstaHide(k=4, signs="none")], ids=repr)
def test_pictures_and_labels_are_mixed_alike(defense: Mixup | InstaHide) -> None:
    batch = data()
    drawn_, mixed = defense.mixture(batch, Seed(3).rng()), defense.data(batch, Seed(3).rng())
    assert drawn_ is not None
    assert torch.allclose(mixed.images.flatten(1), drawn_.weights @ batch.images.flatten(1))
    assert torch.allclose(mixed.labels, drawn_.weights @ batch.labels)
    assert torch.allclose(mixed.labels.sum(1), torch.ones(6, dtype=torch.float64))
    assert ((drawn_.weights > 0).sum(1) == 4).all()


@pytest.mark.parametrize("defense", [Mixup(k=1), InstaHide(k=1, signs="none")], ids=repr)
def test_one_of_one_is_the_picture_itself(defense: Mixup | InstaHide) -> None:
    batch, mixed = data(), defense.data(data(), Seed(3).rng())
    assert torch.equal(mixed.images, batch.images)
    assert torch.equal(mixed.labels, batch.labels)


@pytest.mark.parametrize("defense", [Mixup(k=3), instahide(k=3), instahide(k=3, signs="fixed")], ids=repr)
def test_the_same_stream_mixes_the_same(defense: Mixup | InstaHide) -> None:
    one, again, other = (defense.data(data(), Seed(seed).rng()).images for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_flip_keeps_the_distance_from_gray_and_hits_half_of_the_pixels() -> None:
    plain = instahide(k=3, signs="none").data(data(), Seed(3).rng()).images
    flipped = instahide(k=3).data(data(), Seed(3).rng()).images
    assert torch.allclose((flipped - 0.5).abs(), (plain - 0.5).abs())
    assert 0.4 < (flipped != plain).double().mean() < 0.6
    assert flipped.min() >= 0
    assert flipped.max() <= 1


def test_fixed_flips_are_the_same_in_every_round_and_fresh_ones_are_not() -> None:
    def where(signs: Any, seed: int) -> torch.Tensor:
        plain = instahide(k=3, signs="none").data(data(), Seed(seed).rng()).images
        return instahide(k=3, signs=signs).data(data(), Seed(seed).rng()).images != plain

    assert torch.equal(where("fixed", 3), where("fixed", 4))
    assert not torch.equal(where("fresh", 3), where("fresh", 4))


FIXED = [
    Mixup(k=3, pairs="fixed"),
    instahide(k=3, pairs="fixed", signs="fixed"),
    bound_to_public(instahide(k=4, pairs="fixed", signs="fixed", partners="cross")),
]


@pytest.mark.parametrize("defense", FIXED, ids=["mixup", "instahide", "cross"])
def test_fixed_encodings_belong_to_the_pictures_and_not_to_the_stream_or_the_order(defense: Mixing) -> None:
    batch, order = data(), torch.tensor([3, 0, 5, 1, 4, 2])
    one, again = (defense.data(batch, Seed(seed).rng()) for seed in (3, 4))
    shuffled = defense.data(Batch(*(x[order] for x in batch)), Seed(5).rng())
    for first, second, third in zip(one, again, shuffled, strict=True):
        assert torch.equal(first, second)
        assert torch.allclose(first[order], third, rtol=0, atol=1e-14)
    other_seed = replace(defense, seed=1).data(batch, Seed(3).rng())
    assert not torch.allclose(one.images, other_seed.images)
    others = replace(defense, pairs="fresh").data(batch, Seed(3).rng())
    assert not torch.allclose(one.labels, others.labels)


@pytest.mark.parametrize("defense", FIXED, ids=["mixup", "instahide", "cross"])
def test_a_fixed_mixture_is_one_that_could_have_been_drawn(defense: Mixing) -> None:
    own = replace(defense, k=3).draw_once(data()).weights[:, :6]
    assert (own.diagonal() > 0).all()
    assert own.max() <= 0.65
    assert torch.allclose(defense.draw_once(data()).weights.sum(1), torch.ones(6, dtype=torch.float64))


def test_fixed_flips_follow_a_picture_into_any_batch() -> None:
    batch, hiding = data(), instahide(k=1, signs="fixed")
    alone = torch.cat([hiding.data(Batch(*(x[i : i + 1] for x in batch)), Seed(i).rng()).images for i in range(6)])
    assert torch.equal(alone, hiding.data(batch, Seed(9).rng()).images)


@pytest.mark.parametrize("defense", FIXED[:2], ids=["mixup", "instahide"])
def test_rounds_of_fixed_encodings_are_all_alike(defense: Mixing) -> None:
    seen = seen_in(knowing(knows_defense=True, sees_encodings=True, rounds=3), defense)
    for earlier in seen.history:
        assert torch.equal(earlier.knowledge.encodings, seen.knowledge.encodings)  # type: ignore[arg-type]
        assert all(torch.equal(u, seen.update[name]) for name, u in earlier.update.items())
        assert earlier.knowledge.mixture is not None
        assert earlier.knowledge.mixture.fixed
        assert torch.equal(earlier.knowledge.mixture.weights, seen.knowledge.mixture.weights)  # type: ignore[union-attr]


def test_training_meets_the_same_encodings_in_every_round_whatever_their_order() -> None:
    pictures, federation = data(12), Federation(method="fedavg", clients=1, rounds=3, batch_size=4)

    def fed(defense: Defense, number: int) -> torch.Tensor:
        own = round_data(pictures, federation, defense, client="client", round=number)
        return own.images.flatten(1)[own.images.flatten(1)[:, 0].argsort()]

    fixed, fresh = instahide(k=4, pairs="fixed", signs="fixed"), instahide(k=4)
    assert torch.allclose(fed(fixed, 1), fed(fixed, 2), rtol=0, atol=1e-14)
    assert not torch.allclose(fed(fresh, 1), fed(fresh, 2))


def test_cross_takes_two_of_the_client_and_the_rest_from_the_public() -> None:
    defense, batch = bound_to_public(instahide(k=5, partners="cross", signs="none")), data()
    drawn_, mixed = defense.mixture(batch, Seed(3).rng()), defense.data(batch, Seed(3).rng())
    assert drawn_ is not None
    assert drawn_.weights.shape == (6, 6 + 9)
    own, others = drawn_.weights.split([6, 9], 1)
    assert ((own > 0).sum(1) == 2).all()
    assert ((others > 0).sum(1) == 3).all()
    assert own.sum(1).min() >= LEAST
    assert torch.allclose(mixed.labels, own @ batch.labels)  # public pictures bring no label
    assert defense.pool is not None
    expected = own @ batch.images.flatten(1) + others @ defense.pool.flatten(1)
    assert torch.allclose(mixed.images.flatten(1), expected)


def test_a_client_with_one_picture_can_be_mixed_with_public_ones() -> None:
    defense = bound_to_public(instahide(k=4, partners="cross"), count=1)
    drawn_ = defense.mixture(data(1), Seed(0).rng())
    assert drawn_ is not None
    assert (drawn_.weights > 0).sum() == 4


REFUSED = {
    "k = 0 mixes nothing": lambda: Mixup(k=0),
    "bound = 0.3 leaves no room": lambda: Mixup(k=4, bound=0.3),
    "k = 5 is more than the 4 pictures": lambda: Mixup(k=5).bind(four_pictures()),
    "k = 6 is more than the 4 pictures": lambda: instahide(k=6).bind(four_pictures()),
    "k = 7 is more than the 6 pictures": lambda: Mixup(k=7).data(data(), Seed(0).rng()),
    "needs 2 public pictures and there are 0": lambda: instahide(partners="cross").bind(four_pictures()),
    "needs 10 public pictures and there are 9": lambda: bound_to_public(instahide(k=12, partners="cross")),
    "bind it to a scenario": lambda: instahide(partners="cross").data(data(), Seed(0).rng()),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_mixed_is_refused_in_one_line(said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        REFUSED[said]()
    assert "\n" not in str(caught.value)


# what the attacker is granted


def knowing(**granted: Any) -> Scenario:
    return replace(four_pictures(), threat=ThreatModel(**granted))


def test_only_one_who_knows_the_defense_is_told_what_was_mixed() -> None:
    assert seen_in(knowing(), Mixup(k=3)).knowledge.mixture is None
    assert seen_in(knowing(knows_defense=True)).knowledge.mixture is None
    assert seen_in(knowing(knows_defense=True), Gaussian()).knowledge.mixture is None


@pytest.mark.parametrize("defense", [Mixup(k=3), Stack((Gaussian(scale=0.0), Mixup(k=3)))], ids=["alone", "stacked"])
def test_what_it_is_told_is_what_was_mixed_in_every_round(defense: Defense) -> None:
    scenario = knowing(knows_defense=True, sees_encodings=True, rounds=3)
    seen, truth = observe(scenario, defense, Onlooker(), Seed(0))
    for one in (*seen.history, seen):
        assert one.knowledge.mixture is not None
        assert one.knowledge.encodings is not None
        given = torch.einsum("ces,cshwd->cehwd", one.knowledge.mixture.weights, scenario.private.images)
        assert torch.allclose(one.knowledge.encodings, given)
    assert seen.knowledge.encodings is not None
    assert torch.equal(seen.knowledge.encodings, truth.fed.images)
    assert not torch.equal(seen.knowledge.encodings, seen.history[0].knowledge.encodings)  # type: ignore[arg-type]


def test_encodings_are_given_only_where_a_defense_makes_them_and_the_threat_says_so() -> None:
    assert seen_in(knowing(knows_defense=True), Mixup(k=3)).knowledge.encodings is None
    assert seen_in(knowing(sees_encodings=True)).knowledge.encodings is None  # they would be the private pictures
    assert seen_in(knowing(sees_encodings=True), Gaussian()).knowledge.encodings is None


def test_a_client_taken_alone_brings_its_own_mixture() -> None:
    seen = seen_in(knowing(knows_defense=True, sees_encodings=True, rounds=2), Mixup(k=3))
    alone = seen.take([1])
    for one, all_ in ((alone, seen), (alone.history[0], seen.history[0])):
        assert one.knowledge.mixture is not None
        assert all_.knowledge.mixture is not None
        assert torch.equal(one.knowledge.mixture.weights, all_.knowledge.mixture.weights[[1]])
        assert torch.equal(one.knowledge.encodings, all_.knowledge.encodings[[1]])  # type: ignore[arg-type,index]
