"""`april-search`: where noise spoils the closed form, a search goes on from what is left of it."""

from __future__ import annotations

import pytest
import torch
from scenes import CLASSES, MEAN, STD, drawn, one_hot, seen_in, smooth
from torch import Tensor, nn

from gradveil.attacks.april import april, find_embedding
from gradveil.attacks.april_search import april_search, read_damped
from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.errors import NotApplicableError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.vit import vit

SHAPE = (3, 16, 16)
SOME = Gaussian(scale=1e-4)


def patches(examples: int = 1, model: nn.Module | None = None, width: int = 48) -> Scenario:
    shape = SHAPE if model is None else (3, 8, 8)
    sizes = {"width": width, "heads": 2, "depth": 2, "patch": 4, "mean": MEAN, "std": STD}
    model = model or vit(classes=CLASSES, shape=shape, **sizes)
    like = next(model.parameters())
    private = Batch(drawn(3, examples, *shape, seed=5).to(like), one_hot(3, examples).to(like))
    return Scenario(name="patches", model=model, private=private, names=("a", "b", "c"), threat=ThreatModel())


def quality(images: Tensor, scenario: Scenario) -> Tensor:
    return peak_signal_to_noise(images, scenario.private.images)


def test_it_begins_where_a_search_from_noise_does_not_come() -> None:
    scenario = patches()
    seen = seen_in(scenario, SOME)
    assert not april().reconstruct(seen, Seed(0)).found.any()
    got, other = (make(steps=60, tv=1e-3).reconstruct(seen, Seed(0)) for make in (april_search, invertgrad))
    read = quality(read_damped(seen)[0], scenario)
    assert (read > quality(torch.full_like(got.images, 0.5), scenario) + 3).all()
    assert (quality(got.images, scenario) > quality(other.images, scenario) + 2).all()
    assert (quality(got.images, scenario) > read - 1).all()


def test_an_update_that_nothing_disturbed_needs_no_search() -> None:
    scenario = patches()
    got = april_search(steps=2, tv=1e-3).reconstruct(seen_in(scenario), Seed(0))
    assert (quality(got.images, scenario) > 60).all()
    assert (got.loss < 1e-6).all()


def test_damping_helps_against_noise() -> None:
    """Of as many unknowns as equations the plain ones lose more."""
    scenario = patches(width=16)
    seen = seen_in(scenario, SOME)
    embedding = find_embedding(seen)
    plain = embedding.inputs.invert(embedding.read(seen)).unsqueeze(1).clamp(0, 1)
    assert quality(read_damped(seen)[0], scenario).mean() > quality(plain, scenario).mean()


def test_models_without_positions_are_left_out() -> None:
    seen = seen_in(patches(model=smooth()))
    for run in (april_search().check, lambda seen: april_search().reconstruct(seen, Seed(0))):
        with pytest.raises(NotApplicableError, match="no patch embedding"):
            run(seen)


def test_batches_are_left_out() -> None:
    seen = seen_in(patches(2))
    with pytest.raises(NotApplicableError, match="alone"):
        april_search().check(seen)
    assert not april_search().reconstruct(seen, Seed(0)).found.any()


def test_the_prior_alone_does_not_look_at_the_update() -> None:
    scenario = patches()
    blind = april_search(steps=2, tv=1e-3).prior_only()
    pictures = [
        blind.reconstruct(seen_in(scenario, defense), Seed(0)).images for defense in (SOME, Gaussian(scale=1.0))
    ]
    assert torch.equal(*pictures)
