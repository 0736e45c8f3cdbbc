"""A search in phases: each goes on from where the last ended, in coarser or finer pictures."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import drawn, scene, seen_in, smooth

from gradveil.attacks.coarse_to_fine import coarse_to_fine
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.seeds import Seed
from gradveil.engine.distance import Cosine, Unmatched
from gradveil.engine.layers import narrow
from gradveil.engine.path import Phase
from gradveil.engine.spaces.bicubic import Bicubic
from gradveil.engine.spaces.space import Pixels
from gradveil.engine.spaces.started import Started

DOUBLE = Compute(precision="float64")


@pytest.mark.parametrize("inner", [Pixels(), Bicubic(factor=2), Bicubic(factor=2, normalized=True)])
def test_a_given_picture_is_where_the_search_starts(inner: Pixels | Bicubic) -> None:
    seen = seen_in(scene(smooth(), 1, 1))
    flat = torch.full((2, 1, 3, 8, 8), 0.25, dtype=torch.float64)  # of which nothing is lost when it is made small
    flat[1] = 0.75
    space = Started(inner=inner, pictures={"c": flat}).bind(seen)
    for restart in (0, 1):
        z = {name: x.unsqueeze(0) for name, x in space.init(Seed(0), "c", restart).items()}
        assert (space.decode(z)[0] - flat[restart]).abs().max() < 1e-6


def test_every_restart_goes_on_from_its_own_picture() -> None:
    seen = seen_in(scene(smooth(), 2, 1))
    attack = coarse_to_fine(steps=6, restarts=2)
    images = drawn(4, 1, 3, 8, 8)  # [client x restart, ...]
    stage = attack.stage(3, Phase(1, 0.0), seen, images)
    bound = stage.space.bind(seen)
    for place in range(4):
        z = bound.init(Seed(0), seen.names[place // 2], place % 2)
        assert (bound.decode({"pixels": z["pixels"].unsqueeze(0)})[0] - images[place]).abs().max() < 1e-6


def test_the_steps_are_those_of_all_phases_together() -> None:
    attack = coarse_to_fine(steps=13)
    assert [attack.share(number) for number in range(len(attack.phases))] == [3, 3, 3, 2, 2]
    assert attack.scaled(2.0).steps == 26


def test_fine_phases_see_what_the_coarse_one_cannot_show() -> None:
    seen = seen_in(scene(smooth(), 4, 1))
    whole = coarse_to_fine(steps=60)
    coarse = replace(whole, phases=whole.phases[:1])
    found, first = (one.reconstruct(seen, Seed(0), DOUBLE) for one in (whole, coarse))
    assert (found.loss < first.loss / 2).all()
    assert found.images.shape == first.images.shape


def test_the_best_of_all_phases_is_kept_and_its_match_is_the_loss() -> None:
    seen = seen_in(scene(smooth(), 2, 1))
    attack = replace(coarse_to_fine(steps=20, part="all"), phases=(Phase(1, 1e-3), Phase(1, 1e3)))  # then a blank
    alone = replace(attack, phases=attack.phases[:1], steps=10)
    got, first = (one.reconstruct(seen, Seed(0), DOUBLE) for one in (attack, alone))
    assert torch.equal(got.loss, first.loss)
    assert torch.equal(got.images, first.images)


def test_without_an_update_it_shows_a_blank() -> None:
    seen = seen_in(scene(smooth(), 2, 1))
    got = coarse_to_fine(steps=20).prior_only().reconstruct(seen, Seed(0), DOUBLE)
    assert got.images.std((-1, -2)).max() < 1e-3


def test_no_phase_is_an_error_in_a_line() -> None:
    with pytest.raises(ConfigError, match="no phase is left"):
        coarse_to_fine(factors=())


def test_the_layers_that_are_matched() -> None:
    seen = seen_in(scene(smooth(), 1, 1))
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in seen.update))
    early, body = narrow(Cosine(), "early", seen), narrow(Cosine(), "body", seen)
    assert isinstance(early, Cosine)
    assert isinstance(body, Cosine)
    assert {name.rpartition(".")[0] for name in early.only} == set(layers[: min(-(-len(layers) // 2), len(layers) - 1)])
    assert body.without == (f"{layers[-1]}.*",)
    assert narrow(Cosine(), "all", seen) == Cosine()
    assert narrow(Unmatched(), "early", seen) == Unmatched()
    lonely = replace(seen, update={name: u for name, u in seen.update.items() if name.startswith(layers[0])})
    with pytest.raises(NotApplicableError, match="one layer only"):
        narrow(Cosine(), "early", lonely)
