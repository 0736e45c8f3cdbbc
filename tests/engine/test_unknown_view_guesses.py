"""An attacker who knows what may have been drawn finds out what was: the guessing by itself, and in an attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scenes import one_hot, scene, seen_in, smooth
from torch import Generator, Tensor

from gradveil.attacks import ATTACKS
from gradveil.attacks.compare import compare
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.known_policy import known_policy, shifted
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.knowledge import Knowledge, View
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch, Update
from gradveil.data.photos import photos
from gradveil.defenses.prune import Prune
from gradveil.defenses.stack import Stack
from gradveil.engine.inversion import Inversion
from gradveil.engine.priors.group import GroupConsistency
from gradveil.engine.priors.prior import BatchNormStatistics, Norm, TotalVariation
from gradveil.engine.spaces.unknown_view import FEWEST, Guesses, Viewed, alone, likeliest, steps_of
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.lenet import lenet

DOUBLE = Compute(precision="float64")
KNOWS = ThreatModel(knows_defense=True)


def moved(images: Tensor, columns: int) -> Tensor:
    """Sideways by whole pixels, black behind it."""
    room = F.pad(images, (max(columns, 0), max(-columns, 0)))
    return room[..., max(-columns, 0) :][..., : images.shape[-1]]


@dataclass(frozen=True)
class EitherSide(Defense):
    """Moves every picture to the left or to the right; each draws its own side."""

    columns: int = 2

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        sides = torch.randint(2, (len(batch.images),), generator=rng).tolist()
        images = [self.knowledge().views[side].apply(x) for side, x in zip(sides, batch.images, strict=True)]
        return Batch(torch.stack(images), batch.labels)

    def surrogate(self, seen: Update) -> Defense:
        return Defense()

    def knowledge(self) -> Knowledge:
        sides = ((-self.columns, "l"), (self.columns, "r"))
        return Knowledge(views=tuple(View(partial(moved, columns=c), name) for c, name in sides))


def round_of(
    defense: EitherSide, clients: int, examples: int = 1, size: int = 8, model: Any = None
) -> tuple[Observation, Truth]:
    """Photographs, and an attacker who knows the defense."""
    shape, model = (3, size, size), smooth() if model is None else model
    scenario = scene(model, clients, examples, shape=shape, threat=KNOWS, labels=one_hot(clients, examples))
    pictures = photos(size=size, limit=clients * examples).images.double().view(clients, examples, *shape)
    return observe(
        replace(scenario, private=Batch(pictures, scenario.private.labels)), defense, known_policy(), Seed(0)
    )


def sides(defense: EitherSide, truth: Truth) -> Tensor:
    """What was drawn, [client, example]."""
    errors = [
        (v.apply(truth.private.images) - truth.fed.images).abs().flatten(2).sum(-1) for v in defense.knowledge().views
    ]
    return torch.stack(errors).argmin(0)


def chosen_by(attack: Inversion, seen: Observation) -> Tensor:
    return guessed(attack.adapt(seen, Seed(0), DOUBLE)[0], seen)


def guessed(adapted: Inversion, seen: Observation) -> Tensor:
    """The view of each picture, [client, example]."""
    space = adapted.space
    assert isinstance(space, Viewed)
    assert all(len(guesses) == 1 for guesses in space.guesses.values())
    return torch.tensor([space.guesses[name][0] for name in seen.names])


def decibels(got: Reconstruction, pictures: Tensor) -> float:
    return peak_signal_to_noise(got.images, pictures).mean().item()


# the guessing by itself

NAMES: tuple[str, ...] = ("a", "b", "c")
VIEWS = tuple(View(lambda x: x, str(number)) for number in range(4))


def scout_for(truth: Mapping[str, tuple[int, ...]], called: list[int]) -> Any:
    """A match that counts the pictures with a wrong view."""

    def scout(guesses: Guesses) -> Tensor:
        called.append(len(next(iter(guesses.values()))))
        wrong = [[sum(g != t for g, t in zip(g, truth[n], strict=True)) for g in guesses[n]] for n in NAMES]
        return torch.tensor(wrong, dtype=torch.float64)

    return scout


@pytest.mark.parametrize("examples", [1, 2, 5])
def test_pictures_that_do_not_disturb_each_other_are_all_found(examples: int) -> None:
    drawn = torch.randint(len(VIEWS), (3, examples), generator=torch.Generator().manual_seed(examples)).tolist()
    truth: dict[str, tuple[int, ...]] = dict(zip(NAMES, map(tuple, drawn), strict=True))
    called: list[int] = []
    guesses, _ = likeliest(scout_for(truth, called), NAMES, VIEWS, examples)
    assert guesses == {name: (truth[name],) for name in NAMES}
    assert called == ([4] if examples == 1 else [4, 4 * examples, 4 * examples])  # the second round changes nothing


def test_there_is_nothing_to_guess_about_a_single_view() -> None:
    called: list[int] = []
    guesses, _ = likeliest(scout_for(dict.fromkeys(NAMES, (0, 0)), called), NAMES, VIEWS[:1], 2)
    assert guesses == dict.fromkeys(NAMES, ((0, 0),))
    assert called == []


def test_a_search_that_broke_down_is_not_chosen() -> None:
    match = torch.tensor([[torch.nan, 1.0, 2.0, 3.0], [torch.nan] * 4, [4.0, torch.nan, 3.0, 5.0]])
    guesses, _ = likeliest(lambda guesses: match, NAMES, VIEWS, 1)
    assert guesses == {"a": ((1,),), "b": ((0,),), "c": ((2,),)}


def test_a_note_tells_how_many_were_tried_and_what_was_chosen() -> None:
    _, notes = likeliest(scout_for({"a": (2,), "b": (1,), "c": (2,)}, []), NAMES, VIEWS, 1)
    assert notes == ("4 views of the known policy tried, chosen: 2 (2x), 1 (1x)",)


def test_who_is_there_twice_is_guessed_alike() -> None:
    match = torch.tensor([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
    assert likeliest(lambda guesses: match, ("a", "b", "a"), VIEWS[:2], 1)[0] == {"a": ((1,),), "b": ((0,),)}


def test_a_scout_has_one_weight_of_each_prior_and_no_group() -> None:
    priors = (TotalVariation((1e-4, 1e-1, 1e-2)), Norm(3.0), GroupConsistency(1.0), BatchNormStatistics(optional=True))
    assert alone(priors) == (TotalVariation(1e-2), Norm(3.0), BatchNormStatistics(optional=True))


def test_a_scout_takes_an_eighth_of_the_steps() -> None:
    assert [steps_of(steps) for steps in (1, 50, 400, 2400)] == [1, 50, FEWEST, 300]


# in an attack


def test_the_true_view_is_found_and_worth_several_decibels() -> None:
    """Eight photographs and LeNet, untrained: seven right at least, where a coin has one chance in 28."""
    defense = EitherSide(3)
    seen, truth = round_of(defense, 8, size=16, model=lenet(classes=5, shape=(3, 16, 16), seed=1).double())
    attack, drawn = invertgrad(steps=100, tv=1e-2), sides(defense, truth)
    assert 0 < drawn.sum() < 8
    adapted, notes = attack.adapt(seen, Seed(0), DOUBLE)
    assert (guessed(adapted, seen) == drawn).sum() >= 7
    adaptive = adapted.search(seen, Seed(0), DOUBLE, notes)
    unaware = attack.reconstruct(seen.unaware(), Seed(0), DOUBLE)
    assert decibels(adaptive, truth.private.images) > decibels(unaware, truth.private.images) + 3
    assert decibels(unaware, truth.fed.images) > decibels(unaware, truth.private.images) + 3
    assert (adaptive.backend, unaware.backend) == ("sweep", "sweep")
    assert unaware.notes == ()
    assert "2 views of the known policy tried, chosen: " in adaptive.notes[0]


def test_every_picture_of_a_batch_has_its_own_view() -> None:
    defense = EitherSide(2)
    seen, truth = round_of(defense, 3, 3)
    drawn = sides(defense, truth)
    assert any(len(set(row)) == 2 for row in drawn.tolist())
    assert (chosen_by(invertgrad(steps=80, tv=1e-2), seen) == drawn).sum() >= 8


INVERSIONS = [
    "invertgrad",
    "sgd-cosine",
    "dlg",
    "lbfgs-cosine",
    "dlg-code",
    "dlg-joint",
    "adam-l1",
    "gradinversion-full",
]


@pytest.mark.parametrize("name", INVERSIONS)
def test_every_search_adapts_by_itself(name: str) -> None:
    defense = EitherSide(2)
    seen, _ = round_of(defense, 2)
    if name == "dlg-joint":
        seen = replace(seen, labels=None)
    attack = ATTACKS[name](steps=10)
    got = attack.reconstruct(seen, Seed(0), DOUBLE)
    assert any("views of the known policy" in note for note in got.notes)
    assert got.loss.isfinite().all()
    unaware = attack.reconstruct(seen.unaware(), Seed(0), DOUBLE)
    assert not torch.equal(got.images, unaware.images)


SEEN, TRUTH = round_of(EitherSide(2), 3)
SHORT = invertgrad(steps=12, tv=(1e-4, 1e-2))


def test_a_client_alone_is_the_client_among_others() -> None:
    together = SHORT.reconstruct(SEEN, Seed(0), DOUBLE)
    for client in range(3):
        alone = SHORT.reconstruct(SEEN.take([client]), Seed(0), DOUBLE)
        assert (alone.images[0] - together.images[client]).abs().max() < 1e-9
    shuffled = SHORT.reconstruct(SEEN.take([2, 0, 1]), Seed(0), DOUBLE)
    assert (shuffled.images - together.images[[2, 0, 1]]).abs().max() < 1e-9
    assert (SHORT.reconstruct(SEEN.take([1, 1]), Seed(0), DOUBLE).images - together.images[1]).abs().max() < 1e-9


@pytest.mark.parametrize("changes", [{"chunk": 1}, {"chunk": 4}, {"backend": "loop"}, {"backend": "vmap"}])
def test_neither_chunk_nor_back_end_changes_the_result(changes: dict[str, Any]) -> None:
    expected = SHORT.reconstruct(SEEN, Seed(0), DOUBLE)
    got = SHORT.reconstruct(SEEN, Seed(0), replace(DOUBLE, **changes))
    assert (got.images - expected.images).abs().max() < 1e-9
    assert got.notes[-1] == expected.notes[-1]


def test_a_defense_at_the_update_is_modelled_as_well() -> None:
    seen = seen_in(scene(smooth(), 2, threat=KNOWS), Stack((EitherSide(2), Prune(ratio=0.3))))
    got = SHORT.reconstruct(seen, Seed(0), DOUBLE)
    assert got.backend == "sweep"
    assert "2 views" in got.notes[-1]


def test_a_single_view_that_does_nothing_changes_nothing() -> None:
    nothing = Knowledge(views=(View(lambda x: x, "as it is"),))
    got = SHORT.reconstruct(replace(SEEN.unaware(), knowledge=nothing), Seed(0), DOUBLE)
    plain = SHORT.reconstruct(SEEN.unaware(), Seed(0), DOUBLE)
    assert torch.equal(got.images, plain.images)
    assert torch.equal(got.loss, plain.loss)


def test_who_learns_the_policy_does_not_guess() -> None:
    attack = shifted(limit=(0.5, 0.0), steps=10)
    got, plain = (attack.reconstruct(s, Seed(0), DOUBLE) for s in (SEEN, SEEN.unaware()))
    assert torch.equal(got.images, plain.images)
    assert got.notes == ()
    assert "views" not in attack.uses


def test_known_policy_is_invertgrad_with_views_and_needs_them() -> None:
    options: dict[str, Any] = {"steps": 12, "tv": (1e-4, 1e-2)}
    attack = known_policy(**options)
    got, expected = (a.reconstruct(SEEN, Seed(0), DOUBLE) for a in (attack, SHORT))
    assert torch.equal(got.images, expected.images)
    assert attack.undefended() == SHORT
    assert (attack.requires, SHORT.requires) == ({"views"}, frozenset())
    for unaware in (None, Defense()):
        with pytest.raises(NotApplicableError, match="knows of no policy"):
            attack.reconstruct(replace(SEEN.unaware(), defense=unaware), Seed(0), DOUBLE)


def test_what_was_fed_can_be_reported_instead() -> None:
    options: dict[str, Any] = {"steps": 30, "tv": 1e-2}
    private, fed = (known_policy(reveal=r, **options).reconstruct(SEEN, Seed(0), DOUBLE) for r in ("private", "fed"))
    which = chosen_by(known_policy(**options), SEEN)[:, 0].tolist()
    views = EitherSide(2).knowledge().views
    expected = torch.stack([views[k].apply(x) for k, x in zip(which, private.images, strict=True)])
    assert torch.equal(fed.images, expected)
    assert torch.equal(fed.loss, private.loss)


def test_an_ensemble_compares_its_stages_through_the_views() -> None:
    """What explains the update is the picture as fed; and the one before it, to those who look through its view."""
    shape = replace(SHORT, steps=1).reconstruct(SEEN, Seed(0), DOUBLE)
    for pictures in (TRUTH.private.images, TRUTH.fed.images):
        got = replace(shape, images=pictures)
        assert (compare(got, SEEN).loss < 1e-9).all()
        unaware = compare(got, SEEN.unaware()).loss
        assert (unaware < 1e-9).all() == (pictures is TRUTH.fed.images)
