"""OASIS: the right copies in the right order, the mean over them, and an attacker who makes the copies itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scenes import CLASSES, Onlooker, drawn, four_pictures, scene, seen_in, smooth
from torch import Tensor
from torch.func import functional_call

from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.client import local_update, loss_of, parameters_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.defenses import DEFENSES
from gradveil.defenses._copies import TRANSFORMS
from gradveil.defenses.oasis import Oasis
from gradveil.defenses.stack import Stack
from gradveil.defenses.topk import TopK
from gradveil.metrics.psnr import peak_signal_to_noise

EVERY = "major+minor+shear+hflip+vflip"
KNOWING = ThreatModel(knows_defense=True)


def enlarged(defense: Defense, batch: Batch) -> Batch:
    return defense.batch(batch, Seed(0).rng())


def some(count: int = 3, size: int = 8) -> Batch:
    return Batch(drawn(count, 3, size, size), drawn(count, CLASSES, seed=1))


# the copies


@pytest.mark.parametrize(
    ("transforms", "copies"),
    [
        ("none", 1),
        ("major", 4),
        ("minor", 4),
        ("shear", 4),
        ("hflip", 2),
        ("vflip", 2),
        ("major+shear", 7),
        (EVERY, 12),
    ],
)
def test_every_picture_is_followed_by_its_copies_with_its_label(transforms: str, copies: int) -> None:
    defense, batch = Oasis(transforms=transforms), some()
    fed = enlarged(defense, batch)
    assert defense.copies == copies
    assert fed.images.shape == (3 * copies, 3, 8, 8)
    assert torch.equal(fed.images[::copies], batch.images)
    assert torch.equal(fed.labels, batch.labels.repeat_interleave(copies, 0))
    one = enlarged(defense, Batch(batch.images[1:2], batch.labels[1:2]))
    assert torch.equal(fed.images[copies : 2 * copies], one.images)


def test_quarter_turns_and_flips_move_whole_pixels() -> None:
    batch = some()
    fed = enlarged(Oasis(transforms="major+hflip+vflip"), batch).images.unflatten(0, (3, 6))
    for turns in range(4):
        assert torch.equal(fed[:, turns], batch.images.rot90(turns, (-2, -1)))
    assert torch.equal(fed[:, 4], batch.images.flip(-1))
    assert torch.equal(fed[:, 5], batch.images.flip(-2))


def test_combined_transforms_add_their_copies() -> None:
    batch = some()
    both = enlarged(Oasis(transforms=("major", "shear")), batch).images.unflatten(0, (3, 7))
    turned, slid = (
        enlarged(Oasis(transforms=(name,)), batch).images.unflatten(0, (3, 4)) for name in ("major", "shear")
    )
    assert torch.equal(both, torch.cat([turned, slid[:, 1:]], 1))


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_a_minor_rotation_is_grid_sample_s(interpolation) -> None:
    """An independent reference; ties of the nearest pixel are left out by an odd angle."""
    pictures = drawn(2, 3, 9, 9)
    for degrees in (30.0, 45.0, 60.0):
        turn = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
        cos, sin = turn.cos(), turn.sin()
        theta = torch.stack([torch.stack([cos, -sin, 0 * cos]), torch.stack([sin, cos, 0 * cos])]).expand(2, 2, 3)
        grid = torch.nn.functional.affine_grid(theta, [2, 3, 9, 9], align_corners=False)
        expected = torch.nn.functional.grid_sample(pictures, grid, mode=interpolation, align_corners=False)
        copy = TRANSFORMS["minor"][(30.0, 45.0, 60.0).index(degrees)](pictures, interpolation)
        off = (copy - expected).abs()
        assert off.max() < 1e-12 or (interpolation == "nearest" and (off > 0).double().mean() < 0.05)


def test_a_shear_slides_rows_by_their_distance_from_the_middle() -> None:
    picture = torch.zeros(1, 1, 7, 7, dtype=torch.float64)
    picture[..., 3] = 1.0  # an upright line
    slid = TRANSFORMS["shear"][1](picture, "bilinear")[0, 0]
    assert torch.equal(slid, torch.eye(7, dtype=torch.float64).flip(1))
    less = TRANSFORMS["shear"][0](picture, "bilinear")[0, 0]
    assert torch.equal(less[3], picture[0, 0, 3])
    assert torch.allclose(less[4, 2:4], torch.tensor([0.55, 0.45], dtype=torch.float64))


@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_copies_are_linear_and_bring_in_black(interpolation) -> None:
    defense = Oasis(transforms=EVERY, interpolation=interpolation)
    a, b = drawn(2, 3, 8, 8), drawn(2, 3, 8, 8, seed=1)
    assert torch.allclose(defense.of_each(2 * a - 3 * b), 2 * defense.of_each(a) - 3 * defense.of_each(b), atol=1e-12)
    white = defense.of_each(torch.ones(1, 3, 8, 8))
    assert white.min() == 0
    assert white.max() <= 1 + 1e-6


# the update


def test_the_loss_is_the_mean_over_the_enlarged_batch() -> None:
    model, batch, defense = smooth(), some(2), Oasis(transforms="major+shear")
    params = parameters_of(model)
    got = local_update(model, params, batch, LocalTraining(), defense, Seed(0).rng())

    def mean_loss(params: dict[str, Tensor]) -> Tensor:
        each = defense.of_each(batch.images)
        losses = [
            loss_of(functional_call(model, params, (each[i, k : k + 1],)), batch.labels[i : i + 1], "cross-entropy")
            for i in range(2)
            for k in range(7)
        ]
        return torch.stack(losses).mean()

    expected = torch.func.grad(mean_loss)(params)
    assert all(torch.allclose(got[name], g, rtol=1e-10, atol=1e-14) for name, g in expected.items())


def test_the_order_within_a_batch_does_not_matter() -> None:
    model, batch, defense = smooth(), some(3), Oasis()
    backward = Batch(batch.images.flip(0), batch.labels.flip(0))
    a, b = (
        local_update(model, parameters_of(model), x, LocalTraining(), defense, Seed(0).rng()) for x in (batch, backward)
    )
    assert all(torch.allclose(a[name], b[name], rtol=1e-10, atol=1e-14) for name in a)


# the attackers


def test_one_who_does_not_know_sees_as_many_examples_as_were_fed() -> None:
    seen, truth = observe(four_pictures(2), Oasis(), Onlooker(), Seed(0))
    assert seen.examples == 16
    assert seen.labels is not None
    assert torch.equal(seen.labels, truth.fed.labels)
    assert seen.as_fed().examples == 16


def test_one_who_knows_sees_the_private_ones_and_can_look_at_all() -> None:
    scenario = replace(four_pictures(2), threat=KNOWING)
    seen, truth = observe(scenario, Oasis(), Onlooker(), Seed(0))
    assert seen.examples == 4
    assert seen.labels is not None
    assert torch.equal(seen.labels, scenario.private.labels)
    fed = seen.as_fed()
    assert (fed.examples, fed.defense) == (16, None)
    assert fed.labels is not None
    assert torch.equal(fed.labels, truth.fed.labels)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_minibatches_are_enlarged_one_by_one(steps: int) -> None:
    training = LocalTraining(steps=steps, batch_size=3, rate=0.1)
    scenario = replace(scene(smooth(), 1, 4, training=training), threat=KNOWING)
    seen, truth = observe(scenario, Oasis(transforms="hflip"), Onlooker(), Seed(0))
    assert truth.fed.images.shape[1] == 8
    assert torch.equal(truth.fed.images[:, ::2], scenario.private.images)
    assert seen.labels is not None
    assert torch.equal(seen.labels, scenario.private.labels)


@pytest.mark.parametrize("training", [LocalTraining(), LocalTraining(steps=3, batch_size=2, rate=0.1, momentum=0.5)])
@pytest.mark.parametrize("name", ["oasis-mr", "oasis-mr+sh", "oasis-hf"])
def test_the_surrogate_reproduces_the_update_from_the_private_pictures(name: str, training: LocalTraining) -> None:
    scenario, defense = replace(four_pictures(1), threat=KNOWING, training=training), DEFENSES[name]()
    seen = seen_in(scenario, defense)
    assert seen.defense is not None
    surrogate = seen.defense.surrogate({key: u[0] for key, u in seen.update.items()})
    private = Batch(scenario.private.images[0], scenario.private.labels[0])
    replayed = local_update(
        scenario.model.eval(), parameters_of(scenario.model), private, training, surrogate, Seed(9).rng()
    )
    assert all(torch.equal(replayed[key], u[0]) for key, u in seen.update.items())


def test_a_turned_picture_gives_the_same_update_so_nobody_can_tell_which_way_is_up() -> None:
    model, batch = smooth(), some(2)
    turned = Batch(batch.images.rot90(1, (-2, -1)), batch.labels)
    a, b = (
        local_update(model, parameters_of(model), x, LocalTraining(), Oasis(), Seed(0).rng()) for x in (batch, turned)
    )
    assert all(torch.allclose(a[name], b[name], rtol=1e-9, atol=1e-14) for name in a)


@pytest.mark.parametrize("transforms", ["shear", "major"])
def test_a_passive_attacker_who_knows_searches_for_the_private_picture_alone(transforms: str) -> None:
    photo = photos(size=8, limit=2).images.double().unsqueeze(1)
    scenario = replace(scene(smooth(), 2), threat=KNOWING)
    scenario = replace(scenario, private=Batch(photo, scenario.private.labels))
    seen = seen_in(scenario, Oasis(transforms=transforms))
    got = invertgrad(steps=200, tv=1e-4, restarts=1).reconstruct(seen, Seed(0), Compute(precision="float64"))
    assert got.images.shape == photo.shape
    turns = range(4) if transforms == "major" else (0,)
    best = torch.stack([peak_signal_to_noise(got.images.rot90(k, (-2, -1)), photo) for k in turns]).amax(0)
    blank = peak_signal_to_noise(photo.mean((-2, -1), keepdim=True).expand_as(photo), photo)
    assert (best > blank + 1.5).all()


def test_labels_are_inferred_for_the_private_pictures() -> None:
    scenario = replace(scene(smooth(), 3), threat=replace(KNOWING, knows_labels=False))
    got = invertgrad(steps=3, tv=0.0).reconstruct(seen_in(scenario, Oasis()), Seed(0))
    assert torch.equal(got.labels.double(), scenario.private.labels)


def test_in_a_stack_the_copies_multiply_and_what_follows_still_acts() -> None:
    both = Stack((Oasis(transforms="hflip"), Oasis(transforms="major"), TopK(sparsity=0.5)))
    assert both.copies == 8
    seen = seen_in(replace(four_pictures(1), threat=KNOWING), both)
    assert seen.examples == 4
    assert sum(int((u == 0).sum()) for u in seen.update.values()) > 0


# options


def test_presets_are_values() -> None:
    assert DEFENSES["oasis"]() == DEFENSES["oasis-mr"]() == Oasis(transforms=("major",))
    assert DEFENSES["oasis-mr+sh"]() == Oasis(transforms="major+shear")
    assert DEFENSES["oasis-hf"]() == Oasis(transforms=("hflip",))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"transforms": "mayor"}, "did you mean 'major'"),
        ({"transforms": ("shear", "zoom")}, "unknown name 'zoom'"),
        ({"transforms": "major+major"}, "names one twice"),
        ({"transforms": ""}, "unknown name ''"),
    ],
)
def test_what_makes_no_sense_is_refused(options, said: str) -> None:
    with pytest.raises(ConfigError, match="oasis") as error:
        Oasis(**options)
    assert said in str(error.value)


def test_pictures_that_are_not_square_are_refused_by_quarter_turns_only() -> None:
    batch = Batch(drawn(2, 3, 6, 8), drawn(2, CLASSES))
    with pytest.raises(ConfigError, match="leave major out of transforms"):
        enlarged(Oasis(), batch)
    assert enlarged(Oasis(transforms="minor+shear+hflip+vflip"), batch).images.shape == (18, 3, 6, 8)
