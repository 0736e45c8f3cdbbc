"""The attacker who knows LODA: what it looks at, what it rehearses, and that knowing is worth something."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from scenes import one_hot, scene, smooth

from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.loda_inverse import loda_inverse, loda_inverse_paper, loda_of, rehearse, without_loda
from gradveil.config import from_tables
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.loda.loda import Loda
from gradveil.defenses.stack import Stack
from gradveil.metrics.psnr import peak_signal_to_noise

LODA = Loda(extractor="lenet:untrained", layers="first1", c=1.0, steps=60, rate=0.05, cache=False)
SHORT = {"steps": 20, "restarts": 1, "c": (1.0,), "tv": (0.01, 0.1), "lengths": (20, 60), "rehearsal": 2}
DOUBLE = Compute(precision="float64")


def watched(knows: bool, sees: bool = False, defense=LODA):
    """Photographs of 8x8 pixels under LODA."""
    pictures = photos(size=8, limit=24).images.double()
    plain = scene(smooth(), 2, threat=ThreatModel(knows_defense=knows, sees_encodings=sees))
    public = Batch(pictures[8:], one_hot(16, 1)[:, 0])
    scenario = replace(plain, private=Batch(pictures[:2].unsqueeze(1), plain.private.labels), public=public)
    return observe(scenario, defense, loda_inverse(**SHORT), Seed(0))


def test_who_does_not_know_the_defense_runs_the_inner_attack() -> None:
    seen, _ = watched(knows=False)
    got = loda_inverse(**SHORT).reconstruct(seen, Seed(0), DOUBLE)
    plain = invertgrad(steps=20, restarts=1).reconstruct(seen, Seed(0), DOUBLE)
    assert torch.equal(got.images, plain.images)
    assert loda_inverse(**SHORT).undefended() == invertgrad(steps=20, restarts=1)


def test_given_the_encodings_it_comes_nearer_to_the_pictures_than_they_are() -> None:
    seen, truth = watched(knows=True, sees=True)
    assert seen.knowledge.encodings is not None
    got = loda_inverse(**SHORT).reconstruct(seen, Seed(0), DOUBLE)
    before = peak_signal_to_noise(seen.knowledge.encodings, truth.private.images)
    after = peak_signal_to_noise(got.images, truth.private.images)
    assert after.mean() > before.mean() + 1
    assert "from the encodings themselves" in got.notes[-1]


def test_what_the_update_leaks_is_decoded_too() -> None:
    seen, _ = watched(knows=True)
    attack = loda_inverse(**SHORT)
    got = attack.reconstruct(seen, Seed(0), DOUBLE)
    leaked = attack.invert_update(seen, Seed(0), DOUBLE)
    assert torch.equal(got.loss, leaked.loss)
    assert not torch.equal(got.images, leaked.images)
    assert got.notes[-1].startswith("loda-inverse: ")
    assert got.images.min() >= 0
    assert got.images.max() <= 1


def test_the_way_is_chosen_on_public_pictures_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rehearse.cache_clear()
    seen, _ = watched(knows=True, sees=True)
    encoded: list[int] = []
    encode = Loda.encode
    monkeypatch.setattr(Loda, "encode", lambda self, pictures: encoded.append(len(pictures)) or encode(self, pictures))
    attack = loda_inverse(**SHORT)
    first = attack.reconstruct(seen, Seed(0), DOUBLE)
    again = attack.reconstruct(seen.take([1]), Seed(5), DOUBLE)
    assert encoded == [2]
    assert torch.allclose(again.images[0], first.images[1], atol=1e-9)


def test_ways_hold_the_weight_of_the_defense() -> None:
    tried = list(loda_inverse(**SHORT).ways(replace(LODA, c=7.0)))
    assert {way.c for way in tried if way.aim == "stationary"} == {7.0, 1.0}
    assert sum(way.aim == "features" for way in tried) == 2


def test_the_paper_looks_for_nothing_but_its_own_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[loda_inverse.__module__]
    monkeypatch.setattr(module, "rehearse", lambda trial: pytest.fail("rehearse"))
    seen, _ = watched(knows=True, sees=True)
    got = loda_inverse_paper(steps=5, restarts=1, lengths=3).reconstruct(seen, Seed(0), DOUBLE)
    assert got.notes == ("loda-inverse: c = 1, TV 0, 3 steps, from the encodings themselves",)


def test_in_a_stack_the_rest_is_modeled_at_the_update() -> None:
    noise = Gaussian(scale=0.1)
    assert loda_of(Stack((noise, LODA))) is LODA
    assert without_loda(Stack((LODA, noise))) == Stack((noise,))
    assert without_loda(Stack((LODA,))) is None
    assert loda_of(noise) is None
    seen, _ = watched(knows=True, defense=Stack((LODA, Gaussian(scale=1e-3))))
    assert loda_inverse(**SHORT).reconstruct(seen, Seed(0), DOUBLE).loss.isfinite().all()


@pytest.mark.parametrize("options", [{"lengths": (0,)}, {"c": (-1.0,)}, {"tv": (-0.1,)}, {"rehearsal": -1}, {"tv": ()}])
def test_options_out_of_range_are_refused(options) -> None:
    with pytest.raises(ConfigError, match="loda-inverse"):
        loda_inverse(**options)


def test_the_default_attack_on_loda_holds_the_attacker_who_knows_it() -> None:
    options = {"extractor": "lenet:untrained", "layers": "all"}
    attacks = from_tables({"defense": {"none": {}, "loda": options}}).attack
    assert "loda-inverse" in {choice.name for choice in attacks.values()}
    assert "loda-inverse" not in {choice.name for choice in from_tables({}).attack.values()}
