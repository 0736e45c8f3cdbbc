"""Curious Abandon Honesty: halves that are halves, one picture alone is exact, mixtures are told from pictures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from scenes import CLASSES, drawn, scene, smooth, usual
from torch import Tensor, nn

from gradveil.attacks.cah import TrapWeights, cah
from gradveil.attacks.imprint.copy_aware_traps import Rehearsal, separating_rows, spread
from gradveil.attacks.imprint.insertion import place_in
from gradveil.attacks.imprint.module import Imprint
from gradveil.attacks.imprint.readout import Gradient
from gradveil.attacks.imprint.traps import trap_rows, tuned_bias
from gradveil.attacks.imprint.unit_pictures import candidates
from gradveil.core.attack import Reconstruction
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.observation import Observation, Truth
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses.oasis import Oasis
from gradveil.metrics.align import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models.start import weights_from

LIKE = torch.zeros(()).double()


@cache
def photographs() -> Tensor:
    return photos(size=8).images.double()[::9]


def photo_scene(clients: int = 2, examples: int = 8, public: bool = True) -> Scenario:
    pictures = photographs()
    scenario = scene(usual(), clients, examples, threat=ThreatModel(may_plant=True))
    private = pictures[: clients * examples].unflatten(0, (clients, examples))
    known = Batch(pictures[40:], torch.zeros(len(pictures) - 40, CLASSES).double()) if public else None
    return replace(scenario, private=Batch(private, scenario.private.labels), public=known)


def attacked(scenario: Scenario, attack: TrapWeights) -> tuple[Observation, Truth, Reconstruction]:
    seen, truth = observe(scenario, Defense(), attack, Seed(0))
    return seen, truth, attack.reconstruct(seen, Seed(0))


def scored(got: Reconstruction, truth: Truth) -> Tensor:
    pictures = truth.private.images
    return peak_signal_to_noise(align(got.images, pictures, got.found).images, pictures)


def active(seen: Observation, pictures: Tensor) -> Tensor:
    """Which picture activates which unit: [example, unit]."""
    imprint = next(layer for layer in seen.model.modules() if isinstance(layer, Imprint))
    return imprint.first(pictures.flatten(1)) > 0


@pytest.mark.parametrize("scale", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("pixels", [64, 65])
def test_half_of_every_row_is_negative_and_the_other_half_has_its_sizes_times_the_scale(
    scale: float, pixels: int
) -> None:
    rows = trap_rows(50, pixels, 0.5, scale, Seed(0), LIKE)
    assert ((rows < 0).sum(1) == 32).all()
    assert ((rows > 0).sum(1) == 32).all()
    for row in rows:
        assert torch.allclose(row[row > 0].sort().values, scale * (-row[row < 0]).sort().values)
    assert rows[rows < 0].abs().mean().item() == pytest.approx(0.5 * (2 / torch.pi) ** 0.5, rel=0.05)


def test_rows_differ_also_where_the_pool_is_smaller_than_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradveil.attacks.imprint.traps.LARGEST_POOL", 1000)
    rows = trap_rows(300, 64, 0.5, 0.9, Seed(0), LIKE)
    assert torch.cdist(rows, rows).fill_diagonal_(torch.inf).min() > 0.1


@pytest.mark.parametrize("examples", [2, 8, 50])
def test_a_tuned_row_is_activated_by_its_share_of_the_public_pictures(examples: int) -> None:
    pictures = drawn(200, 64)
    rows = trap_rows(100, 64, 0.5, 1.0, Seed(0), pictures)
    share = (pictures @ rows.T + tuned_bias(rows, pictures, examples) > 0).double().mean(0)
    assert (share - 1 / examples).abs().max() <= 1 / 200


def test_tuning_makes_more_units_be_activated_alone() -> None:
    scenario = photo_scene(4)
    shares = []
    for attack in (cah(), cah(scale=0.95), cah(scale=0.5)):
        seen, truth, _ = attacked(scenario, attack)
        alone = [active(seen, p).sum(0) == 1 for p in truth.private.images]
        shares.append(torch.stack(alone).double().mean().item())
    assert shares[0] == max(shares)
    assert shares[0] > 0.25  # 0.39 at best, for eight pictures


@pytest.mark.parametrize("options", [{}, {"at": "conv1"}, {"connection": "add"}, {"connection": "linear"}])
def test_who_activates_a_unit_alone_is_read_to_rounding(options: dict) -> None:
    _, truth, got = attacked(photo_scene(), cah(neurons=512, **options))
    assert (scored(got, truth) > 150).double().mean() > 0.9


def test_given_traps_without_public_pictures() -> None:
    seen, truth, got = attacked(photo_scene(2, 2, public=False), cah(neurons=512, scale=0.95))
    for pictures, decibels in zip(truth.private.images, scored(got, truth), strict=True):
        act = active(seen, pictures)
        alone = act[:, act.sum(0) == 1].any(1)
        assert (decibels[alone] > 150).all()


def test_no_picture_is_counted_twice() -> None:
    _, _, got = attacked(photo_scene(), cah(neurons=512))
    for pictures, found in zip(got.images, got.found, strict=True):
        apart = torch.cdist(pictures[found].flatten(1), pictures[found].flatten(1)) / 192**0.5
        assert (apart + torch.eye(len(apart)) > 1e-3).all()


def test_units_that_nobody_activates_give_nothing() -> None:
    _, _, got = attacked(photo_scene(), cah(scale=0.9, mu=-1e6))
    assert not got.found.any()
    assert got.images.eq(0.5).all()
    assert "cah: 0 of 256 units" in got.notes[0]


def test_the_order_of_a_batch_changes_nothing() -> None:
    scenario, order = photo_scene(1, 4), [2, 0, 3, 1]
    shuffled = replace(scenario, private=Batch(*(x[:, order] for x in scenario.private)))
    one, other = (attacked(s, cah())[2] for s in (scenario, shuffled))
    truth = scenario.private.images
    shown = [align(got.images, truth, got.found).images for got in (one, other)]
    assert torch.allclose(*shown, rtol=0, atol=1e-6)


def test_one_channel_not_square_not_normalized() -> None:
    shape = (1, 5, 7)
    with weights_from(5):
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(60, CLASSES)).double()
    scenario = scene(model, 2, 2, shape=shape, threat=ThreatModel(may_plant=True))
    scenario = replace(scenario, public=Batch(drawn(60, *shape, seed=1), drawn(60, CLASSES)))
    _, truth, got = attacked(scenario, cah(examples=2))
    assert (scored(got, truth) > 150).all()


def test_a_broken_update_fails_alone() -> None:
    attack = cah()
    seen, _ = observe(photo_scene(), Defense(), attack, Seed(0))
    clean = attack.reconstruct(seen, Seed(0))
    seen.update["imprint.first.bias"][0] = torch.nan
    got = attack.reconstruct(seen, Seed(0))
    assert got.loss.isfinite().tolist() == [False, True]
    assert torch.equal(got.images[1], clean.images[1])
    assert got.images.isfinite().all()


# a server that knows what copies are fed


def fed(transforms: str, pictures: Tensor) -> Tensor:
    return Oasis(transforms=transforms).of_each(pictures).flatten(0, 1)


def against(transforms: str, attack: TrapWeights, clients: int = 4) -> tuple[float, Tensor]:
    """The share of the units that one of all that are fed activates alone, and the decibels of every picture."""
    scenario = replace(photo_scene(clients), threat=ThreatModel(may_plant=True, knows_defense=True))
    seen, truth = observe(scenario, Oasis(transforms=transforms), attack, Seed(0))
    alone = [active(seen, fed(transforms, p)).sum(0) == 1 for p in truth.private.images]
    return torch.stack(alone).double().mean().item(), scored(attack.reconstruct(seen, Seed(0)), truth)


@pytest.mark.parametrize("transforms", ["major", "shear"])
def test_rows_that_tell_a_picture_from_its_copies_read_more_of_them(transforms: str) -> None:
    plain, chosen = (against(transforms, cah(separate=given)) for given in ("", transforms))
    assert chosen[0] > plain[0]
    assert (chosen[1] > 100).sum() > (plain[1] > 100).sum()


def test_chosen_rows_are_trap_rows_with_biases_for_all_that_are_fed() -> None:
    place = place_in(usual(), (3, 8, 8), "", "cah", Seed(0))
    public, copies = photographs()[40:], Oasis(transforms="major").of_each
    rows = separating_rows(40, 0.5, Rehearsal(place=place, pictures=public, copies=copies, examples=4, seed=Seed(0)))
    assert ((rows.weight < 0).sum(1) == 96).all()
    assert torch.cdist(rows.weight, rows.weight).fill_diagonal_(torch.inf).min() > 0.1
    share = (fed("major", public).flatten(1) @ rows.weight.T + rows.bias > 0).double().mean(0)
    assert (share - 1 / 16).abs().max() <= 1 / len(public)


def test_units_are_spread_over_what_they_read() -> None:
    reads = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]]).bool()
    assert spread(reads, 3).tolist() == [0, 2, 3]
    assert spread(reads, 4).tolist() == [0, 2, 3, 1]


def test_what_a_unit_shows_beside_a_known_picture_is_a_mixture() -> None:
    """Units 0 and 1 agree on a picture, which activates unit 2 too: what that shows is none; unit 3 is on its own."""
    pictures, mixture = drawn(2, 192), torch.tensor([[0.4, 0.6]]).double()
    shown = torch.cat([pictures[:1], pictures[:1], mixture @ pictures, pictures[1:]])
    weight, bias = torch.ones(4, 192).double(), torch.tensor([0.0, 0.0, 0.0, -1e3]).double()
    strong = torch.tensor([1.0, 1.0, 9.0, 1.0]).double()
    gradient = Gradient(weight=shown * strong[:, None], bias=strong, sent=(weight, bias), decay=0.0)
    place = place_in(usual(), (3, 8, 8), "", "cah", Seed(0))
    how = {"box": 0.02, "same": 1e-3, "seed": Seed()}
    plain, careful = (candidates(gradient, place, 2, **how, consistent=c).inputs for c in (False, True))
    assert torch.allclose(plain, torch.cat([pictures[:1], mixture @ pictures]))
    assert torch.allclose(careful, pictures)


def test_separation_needs_public_pictures_and_known_transforms() -> None:
    with pytest.raises(NotApplicableError, match=r"cah: separate needs 16 public pictures to rehearse on.*are 0"):
        attacked(photo_scene(public=False), cah(separate="major"))
    with pytest.raises(ConfigError, match="unknown name 'mayor', did you mean 'major'"):
        cah(separate="mayor")
    with pytest.raises(ConfigError, match="cah: scale and separate both"):
        cah(separate="major", scale=0.95)


@pytest.mark.parametrize(
    ("option", "value"),
    [("examples", 0), ("scale", -1.0), ("sigma", 0.0), ("box", -1.0), ("same", 0.0), ("sigma", float("nan")),
     ("mu", float("inf"))],
)  # fmt: skip
def test_out_of_range(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^cah: {option} = {value} is .*, take a .*$"):
        cah(**{option: value})


def test_the_smooth_model_too() -> None:
    scenario = replace(photo_scene(), model=smooth())
    _, truth, got = attacked(scenario, cah(neurons=512))
    assert (scored(got, truth) > 150).double().mean() > 0.9
