"""The first search in full; for clients that it does not find the others a little, and what is ahead in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
import torch
from scenes import scene, seen_in, smooth

from gradveil.attacks.compare import compare, keep_better, score_of
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.portfolio import FIRST, Portfolio, portfolio
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.types import Images
from gradveil.engine.inversion import Inversion

DOUBLE = Compute(precision="float64")
STEPS = 80
Asked = list[tuple[str, int, tuple[str, ...]]]


@dataclass(frozen=True, kw_only=True)
class Told(Inversion):
    """Shows for each client what it was told to show, and notes when it was asked."""

    label: str
    shows: Mapping[str, Images]
    asked: Asked

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        self.asked.append((self.label, self.steps, seen.names))
        images = torch.stack([self.shows[name] for name in seen.names])
        count = len(seen.names)
        assert seen.labels is not None
        return Reconstruction(
            images=images, labels=seen.labels, found=torch.ones(count, 1, dtype=torch.bool),
            loss=torch.zeros(count), backend=self.label, converged=torch.full((count,), self.label == "good"),
        )  # fmt: skip


def arm(label: str, shows: Mapping[str, Images], asked: Asked) -> Told:
    plain = invertgrad(steps=STEPS, tv=1e-2)
    return Told(**{name: getattr(plain, name) for name in plain.__dataclass_fields__}, label=label, shows=shows,
                asked=asked)  # fmt: skip


def pictures_near(share: float) -> tuple[Observation, dict[str, Images], dict[str, Images]]:
    """Two clients, their pictures, and these with some noise."""
    own = scene(smooth(), 2, 1)
    true = dict(zip(own.names, own.private.images, strict=True))
    noise = torch.rand(2, 1, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near = {name: (1 - share) * x + share * n for (name, x), n in zip(true.items(), noise, strict=True)}
    return seen_in(own), true, near


def test_the_first_runs_in_full_and_the_others_for_whom_it_does_not_find() -> None:
    seen, true, near = pictures_near(0.1)
    far = pictures_near(0.9)[2]
    first, second = seen.names
    asked: Asked = []
    arms = {
        "one": arm("one", {first: true[first], second: far[second]}, asked),
        "two": arm("two", near, asked),
        "three": arm("three", {first: true[first], second: 1 - true[second]}, asked),
    }
    got = Portfolio(arms=arms, steps=STEPS).reconstruct(seen, Seed(0), DOUBLE)
    little = STEPS // FIRST
    assert asked == [("one", STEPS, seen.names), ("two", little, (second,)), ("three", little, (second,)),
                     ("two", STEPS, (second,))]  # fmt: skip
    assert torch.equal(got.images, torch.stack([true[first], near[second]]))
    assert "race of 3 searches" in got.notes[-1]


def test_where_the_first_finds_everybody_no_other_runs() -> None:
    seen, true, near = pictures_near(0.3)
    asked: Asked = []
    arms = {"good": arm("good", true, asked), "bad": arm("bad", near, asked)}
    Portfolio(arms=arms, steps=STEPS).reconstruct(seen, Seed(0), DOUBLE)
    assert asked == [("good", STEPS, seen.names)]


def test_the_better_match_wins_whatever_its_own_loss_says() -> None:
    seen, true, near = pictures_near(0.3)
    asked: Asked = []
    far = pictures_near(0.9)[2]
    arms = {"bad": arm("bad", far, asked), "good": arm("good", true, asked), "near": arm("near", near, asked)}
    got = Portfolio(arms=arms, steps=STEPS).reconstruct(seen, Seed(0), DOUBLE)
    assert torch.equal(got.images, torch.stack(list(true.values())))
    assert got.converged is not None
    assert got.converged.all()
    assert got.loss.max() < 1e-9


def test_an_arm_that_is_behind_is_out() -> None:
    seen, true, _ = pictures_near(0.3)
    far = pictures_near(0.9)[2]
    asked: Asked = []
    arms = {"good": arm("good", far, asked), "bad": arm("bad", {n: 1 - x for n, x in true.items()}, asked)}
    Portfolio(arms=arms, steps=STEPS).reconstruct(seen, Seed(0), DOUBLE)
    assert asked == [("good", STEPS, seen.names), ("bad", STEPS // FIRST, seen.names)]


def test_an_arm_that_cannot_work_is_left_out_and_named() -> None:
    seen, true, _ = pictures_near(0.1)
    no_head = replace(invertgrad(steps=STEPS, tv=1e-2), part="body")
    headless = replace(seen, model=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 5)).double())
    weight = {"1.weight": torch.rand(2, 5, 192).double(), "1.bias": torch.rand(2, 5).double()}
    bare = replace(headless, update=weight)
    asked: Asked = []
    arms = {"none": no_head, "good": arm("good", true, asked)}
    got = Portfolio(arms=arms, steps=STEPS).reconstruct(bare, Seed(0), DOUBLE)
    assert any(note.startswith("none left out") for note in got.notes)
    assert asked == [("good", STEPS, bare.names)]
    with pytest.raises(NotApplicableError, match="no search applies"):
        Portfolio(arms={"none": no_head}, steps=STEPS).reconstruct(bare, Seed(0), DOUBLE)


def test_who_is_attacked_beside_a_client_changes_nothing() -> None:
    seen = seen_in(scene(smooth(), 3, 1))
    attack = portfolio(steps=24)
    together, alone = (attack.reconstruct(one, Seed(0), DOUBLE) for one in (seen, seen.take([1])))
    assert (together.images[1] - alone.images[0]).abs().max() < 1e-6


def test_its_controls() -> None:
    attack = portfolio(steps=24)
    assert {arm.steps for arm in attack.scaled(2.0).arms.values()} == {48}
    blind = attack.prior_only()
    assert blind.finalists == 0
    got = blind.reconstruct(seen_in(scene(smooth(), 1, 1)), Seed(0), DOUBLE)
    assert got.backend == "priors"
    assert attack.uses == {"surrogate", "views"}


def test_a_broken_result_is_never_better() -> None:
    seen, true, near = pictures_near(0.3)
    whole = compare(arm("good", near, []).reconstruct(seen, Seed(0)), seen)
    broken = compare(replace(whole, images=torch.stack(list(true.values())), loss=torch.full((2,), torch.nan)), seen)
    assert score_of(broken).isnan().all()
    kept, score = keep_better(whole, broken, score_of(whole), [0, 1])
    assert torch.equal(kept.images, whole.images)
    assert score.isfinite().all()


def test_what_explains_less_takes_no_place_however_smooth_and_what_found_nothing_gives_its_own_away() -> None:
    seen, _, near = pictures_near(0.5)
    rough = compare(arm("rough", near, []).reconstruct(seen, Seed(0)), seen)
    gray = compare(replace(rough, images=torch.full_like(rough.images, 0.5)), seen)
    assert (gray.loss > rough.loss).all()
    score = score_of(rough).clamp_min(1.0)  # that of the gray one is lower
    assert (score_of(gray) < score).all()
    assert torch.equal(keep_better(rough, gray, score, [0, 1])[0].images, rough.images)
    nothing = replace(gray, found=torch.zeros(2, 1, dtype=torch.bool))
    assert score_of(nothing).isnan().all()
    none = torch.full((2,), torch.inf)
    assert torch.equal(keep_better(nothing, rough, none, [0, 1])[0].images, rough.images)


def test_a_batch_in_another_order_with_its_own_labels_is_the_same_batch() -> None:
    own = scene(smooth(), 2, 3)
    seen = seen_in(own)
    assert seen.labels is not None
    found = torch.ones(2, 3, dtype=torch.bool)
    images, labels = own.private.images.flip(1), seen.labels.flip(1)
    turned = Reconstruction(images=images, labels=labels, found=found, loss=torch.zeros(2))
    assert compare(turned, seen).loss.max() < 1e-9
    assert compare(replace(turned, labels=seen.labels), seen).loss.min() > 1e-6
