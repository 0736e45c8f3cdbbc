"""An attacker who knows a defense may ignore what it knows, and so is not weaker than one who does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.attacks import ATTACKS
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.engine.informed import Informed, InformedClient
from gradveil.engine.level_table import LevelTable, learn_tables, undo

CLASSES, SIDE = 4, 24


def net() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 12, 5, padding=2, stride=2), nn.Sigmoid(), nn.Conv2d(12, 12, 5, padding=2), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(12 * 144, CLASSES))


def pictures(count: int, seed: int) -> Tensor:
    """Smooth and dark, so that equalizing them changes their levels."""
    rng = torch.Generator().manual_seed(seed)
    small = torch.rand(count, 3, 8, 8, generator=rng)
    return 0.5 * F.interpolate(small, (SIDE, SIDE), mode="bilinear") ** 2


def noise(clients: int) -> Tensor:
    return torch.rand(clients, 1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(9))


def scene(spec: str, knows: bool = True, clients: int = 3, examples: int = 1) -> tuple[Observation, Truth]:
    images = pictures(clients * examples, 1).unflatten(0, (clients, examples))
    labels = F.one_hot(torch.arange(clients * examples) % CLASSES, CLASSES).float().unflatten(0, (clients, examples))
    public = Batch(pictures(64, 2), F.one_hot(torch.arange(64) % CLASSES, CLASSES).float())
    scenario = Scenario(
        name="s",
        model=net(),
        private=Batch(images, labels),
        names=tuple(f"c{i}" for i in range(clients)),
        threat=ThreatModel(knows_defense=knows),
        public=public,
    )
    return observe(scenario, parse_defense(spec), Defaults(), Seed(3))


@dataclass(frozen=True, kw_only=True)
class Defaults(Attack):
    """Returns what it was made with: one picture for who knows the defense, another for who does not."""

    knowing: Tensor | None = None
    unaware: Tensor | None = None

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        images = self.unaware if seen.defense is None else self.knowing
        assert images is not None
        assert seen.labels is not None
        found = torch.ones(images.shape[:2], dtype=torch.bool)
        return Reconstruction(images=images, labels=seen.labels, found=found, loss=torch.zeros(len(images)))


def psnr(one: Tensor, other: Tensor) -> Tensor:
    return -10 * (one - other).square().flatten(1).mean(1).log10()


@pytest.mark.parametrize(
    "spec", ["qsgd", "sign", "topk:sparsity=0.9", "uniform", "prune:ratio=0.9", "gaussian:scale=0.001"]
)
def test_each_client_gets_what_explains_its_update_better(spec: str) -> None:
    seen, truth = scene(spec)
    right, wrong = truth.private.images, noise(3)
    mixed = right.clone()
    mixed[1:] = wrong[1:]
    other = right.clone()
    other[:1] = wrong[:1]
    got = Informed(inner=Defaults(knowing=mixed, unaware=other)).reconstruct(seen, Seed(0))
    assert torch.equal(got.images, right)
    assert "2 of 3 clients: found without what is known of the defense" in got.notes


def test_a_picture_as_fed_is_undone() -> None:
    """Equalize: whoever searches through it has nothing, whoever finds the fed picture has most of the private one."""
    seen, truth = scene("ats:30")
    got = Informed(inner=Defaults(knowing=pictures(3, 9).unsqueeze(1), unaware=truth.fed.images)).reconstruct(
        seen, Seed(0)
    )
    assert got.fed is not None
    assert torch.equal(got.fed, truth.fed.images)
    gained = psnr(got.images, truth.private.images) - psnr(truth.fed.images, truth.private.images)
    assert gained.mean() > 2


def test_a_moved_picture_is_not_taken_for_the_private_one() -> None:
    """3-1-7 moves it: what was found as fed explains the update perfectly, and yet is not what is looked for."""
    seen, truth = scene("ats:3-1-7")
    attack = Defaults(knowing=truth.private.images, unaware=truth.fed.images)
    got = Informed(inner=attack).reconstruct(seen, Seed(0))
    assert torch.equal(got.images, truth.private.images)
    assert got.fed is not None
    assert torch.allclose(got.fed, truth.fed.images, atol=2 / 255)


def test_every_picture_of_a_batch_has_a_view_of_its_own() -> None:
    seen, truth = scene("ats:3", examples=2)
    attack = Defaults(knowing=truth.private.images, unaware=pictures(6, 9).unflatten(0, (3, 2)))
    got = Informed(inner=attack).reconstruct(seen, Seed(0))
    assert got.fed is not None
    assert torch.allclose(got.fed, truth.fed.images, atol=2 / 255)


def test_what_the_unaware_attacker_found_is_not_searched_again() -> None:
    seen, truth = scene("qsgd")
    found = Defaults(unaware=truth.private.images).reconstruct(replace(seen, defense=None), Seed(0))
    attack = Informed(inner=Defaults(knowing=noise(3)), recall=lambda names: found)
    assert torch.equal(attack.reconstruct(seen, Seed(0)).images, truth.private.images)


def test_who_does_not_know_the_defense_runs_the_attack_as_it_is() -> None:
    seen, truth = scene("qsgd", knows=False)
    got = Informed(inner=Defaults(unaware=truth.private.images)).reconstruct(seen, Seed(0))
    assert got.fed is None
    assert torch.equal(got.images, truth.private.images)


def test_a_search_that_broke_down_is_replaced() -> None:
    seen, truth = scene("qsgd")

    class Broken(Defaults):
        def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
            got = super().reconstruct(seen, seed, compute)
            return got if seen.defense is None else replace(got, loss=torch.full_like(got.loss, torch.nan))

    attack = Broken(knowing=truth.private.images, unaware=pictures(3, 9).unsqueeze(1))
    assert Informed(inner=attack).reconstruct(seen, Seed(0)).loss.isfinite().all()


def test_a_stack_is_also_searched_as_fed_through_the_rest_of_it() -> None:
    """Views left out, the surrogate of the update kept: three searches, and what was fed is undone."""
    seen, truth = scene('stack:of=[{name="ats",policy="30"},{name="topk",sparsity=0.5}]')
    searched = list[tuple[bool, bool]]()

    class Counted(Defaults):
        def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
            searched.append((seen.defense is not None, bool(seen.knowledge.views)))
            images = truth.fed.images if searched[-1] == (True, False) else noise(3)
            return Defaults(knowing=images, unaware=images).reconstruct(seen, seed, compute)

    got = Informed(inner=Counted()).reconstruct(seen, Seed(0))
    assert searched == [(True, True), (False, False), (True, False)]
    assert got.fed is not None
    assert torch.equal(got.fed, truth.fed.images)
    assert (psnr(got.images, truth.private.images) > psnr(truth.fed.images, truth.private.images)).all()


def test_following_the_noise_of_a_defense_is_no_merit() -> None:
    """What explains an update better than the true picture would is chosen by its roughness alone."""
    seen, truth = scene("qsgd:bits=2")
    client = InformedClient.of(seen)
    floor = client.floor(truth.fed.images, truth.fed.labels)
    match = client.match(truth.fed.images, truth.fed.labels)
    assert torch.allclose(floor, match, rtol=0.5)
    assert (floor > 0).all()
    assert (
        not InformedClient.of(scene("prune:ratio=0.5")[0]).floor(truth.fed.images, truth.fed.labels).abs().max() > 1e-5
    )


@pytest.mark.parametrize("policy", ["30", "11-30-35"])
def test_level_maps_hold_less_against_who_knows_them(policy: str) -> None:
    attack = ATTACKS["invertgrad"](steps=60, tv=1e-3)
    seen, truth = scene(f"ats:{policy}", clients=4)
    unaware, informed = (
        one.reconstruct(s, Seed(1)) for one, s in ((attack, seen.unaware()), (Informed(inner=attack), seen))
    )
    gained = psnr(informed.images, truth.private.images) - psnr(unaware.images, truth.private.images)
    assert gained.mean() > 0


def test_a_search_through_a_view_says_what_was_fed() -> None:
    seen, _ = scene("ats:3-1-7", clients=1)
    got = ATTACKS["invertgrad"](steps=3, tv=1e-3).reconstruct(seen, Seed(1))
    assert got.fed is not None
    apart = [(view.apply(got.images) - got.fed).abs().max() for view in seen.knowledge.views]
    assert min(apart) < 1e-5


def test_a_table_says_what_a_level_was_on_average() -> None:
    before = torch.tensor([0.0, 0.2, 0.4, 1.0]).repeat(1000).view(10, 1, 20, 20)
    after = torch.where(before < 0.5, 0.0, 1.0)
    undone = LevelTable.learn(before, after)(after)
    assert torch.allclose(undone[after == 0], torch.tensor(0.2), atol=1e-3)
    assert torch.allclose(undone[after == 1], torch.tensor(1.0), atol=1e-3)


def test_no_table_where_pictures_are_moved_or_none_are_public() -> None:
    moved, level = (parse_defense(f"ats:{policy}").knowledge().views for policy in ("3-1-7", "30"))
    assert not any(learn_tables(moved, pictures(64, 2)))
    assert all(learn_tables(level, pictures(64, 2)))
    assert learn_tables(level, None) == [None]


def test_a_picture_that_would_change_again_is_not_private() -> None:
    views = parse_defense("ats:3-1-7").knowledge().views
    fed = views[0].apply(pictures(4, 5))
    assert not undo(fed, views, learn_tables(views, pictures(64, 2)))[1].any()


def test_without_a_defense_there_is_nothing_to_ignore() -> None:
    seen, truth = scene("none", knows=False)
    assert isinstance(parse_defense("none"), Defense)
    got = Informed(inner=Defaults(unaware=truth.private.images)).reconstruct(seen, Seed(0))
    assert got.notes == ()
