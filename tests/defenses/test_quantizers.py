"""Quantizers: how far off they can be, that QSGD is right on average, and the cells of an attacker who knows them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Generator, Tensor
from torch.func import grad, vmap

from gradveil.attacks import ATTACKS
from gradveil.core.choice import Choice, label_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch, Update
from gradveil.data.photos import photos
from gradveil.defenses._quantization import Cells, from_buckets, range_of, to_buckets, turn_toward
from gradveil.defenses.qsgd import Qsgd
from gradveil.defenses.stack import Stack, stack
from gradveil.defenses.topk import TopK
from gradveil.defenses.uniform import Uniform
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS

UPDATE = {
    "w": torch.randn(40, 25, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3,
    "b": 1e-4 * torch.randn(10, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    "dead": torch.zeros(3, dtype=torch.float64),
    "one": torch.tensor(-2.5, dtype=torch.float64),
}


def rng(seed: int = 0) -> Generator:
    return Seed(seed).rng()


@pytest.mark.parametrize("bits", [2, 3, 8, 16])
@pytest.mark.parametrize("norm", ["max", "l2"])
def test_uniform_is_off_by_half_a_step_at_most(bits: int, norm: Any) -> None:
    for name, u in Uniform(bits=bits, norm=norm).update(UPDATE, rng()).items():
        size = UPDATE[name].abs().max() if norm == "max" else UPDATE[name].norm()
        step = size / (2 ** (bits - 1) - 1)
        assert (u - UPDATE[name]).abs().max() <= step / 2 * (1 + 1e-9)
        assert len(u.unique()) <= 2**bits - 1


def test_uniform_by_hand() -> None:
    u = torch.tensor([3.0, -3.0, 1.4, 1.6, -0.4, 0.0])
    assert Uniform(bits=3).update({"w": u}, rng())["w"].tolist() == [3, -3, 1, 2, 0, 0]
    assert Uniform(bits=3, kappa=0.5).update({"w": u}, rng())["w"].tolist() == [1.5, -1.5, 1.5, 1.5, -0.5, 0]


@pytest.mark.parametrize("defense", [Uniform(), Qsgd(), Qsgd(bucket=7)])
def test_zero_does_not_tell_from_which_side_it_comes(defense: Defense) -> None:
    for u in defense.update(UPDATE, rng()).values():
        assert not u[u == 0].signbit().any()


@pytest.mark.parametrize("options", [{}, {"levels": 1}, {"norm": "l2"}, {"norm": "l2", "bucket": 64}, {"bucket": 7}])
def test_qsgd_is_right_on_average(options: dict) -> None:
    """A z-test of the mean of 2,000 draws of every number: if it is right, the sum of the squares of z is refused with
    probability 1e-4, had the seed not been fixed. A bias of one standard error, 1 % of a step, is refused."""
    u, draws = UPDATE["w"], 2000
    defense, stream = Qsgd(**options), rng()
    sent = torch.stack([defense.update({"w": u}, stream)["w"].flatten() for _ in range(draws)])
    spread = sent.std(0)
    moving = spread > 0
    assert torch.allclose(sent.mean(0)[~moving], u.flatten()[~moving], rtol=1e-9, atol=0.05 * u.abs().max().item())
    often = moving & (spread > 0.1 * spread.max())  # of what moves once in a thousand draws the mean is not normal yet
    z = (sent.mean(0) - u.flatten())[often] / spread[often] * draws**0.5
    assert int(often.sum()) > 100
    assert stats.chi2(int(often.sum())).sf(z.square().sum().item()) > 1e-4
    assert stats.chi2(int(often.sum())).sf((z + 1).square().sum().item()) < 1e-4


@pytest.mark.parametrize("options", [{}, {"levels": 1}, {"bits": 8}, {"norm": "l2"}, {"bucket": 16}])
def test_qsgd_goes_to_one_of_the_two_levels_beside_a_number(options: dict) -> None:
    defense = Qsgd(**options)
    for name, u in defense.update({"w": UPDATE["w"]}, rng()).items():
        parts = to_buckets(UPDATE[name], defense.bucket)
        step = from_buckets((range_of(parts, defense.norm) / defense.highest).expand_as(parts), u)
        assert ((u - UPDATE[name]).abs() <= step * (1 + 1e-9)).all()
        assert torch.allclose((u / step).round(), u / step, atol=1e-9)


def test_a_bucket_has_its_own_range() -> None:
    u = torch.cat([torch.full((4,), 1e-3), torch.full((4,), 1.0)])
    assert torch.allclose(Qsgd(bucket=4).update({"w": u}, rng())["w"], u)
    assert (Qsgd().update({"w": u}, rng())["w"][:4] == 0).any()


@pytest.mark.parametrize("defense", [Uniform(), Uniform(norm="l2", kappa=0.5), Qsgd(), Qsgd(norm="l2", bucket=3)])
def test_nothing_in_gives_nothing_out(defense: Defense) -> None:
    sent = defense.update({"dead": torch.zeros(7), "none": torch.zeros(0, 3)}, rng())
    assert not sent["dead"].any()
    assert sent["none"].shape == (0, 3)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (Uniform, {"bits": 1}, "bits = 1"),
        (Uniform, {"bits": 17}, "bits = 17"),
        (Uniform, {"kappa": 0.0}, "kappa = 0.0"),
        (Uniform, {"kappa": 1.5}, "kappa = 1.5"),
        (Uniform, {"room": -0.5}, "room = -0.5"),
        (Uniform, {"room": math.inf}, "room = inf"),
        (Qsgd, {"bits": 0}, "bits = 0"),
        (Qsgd, {"levels": 0}, "levels = 0"),
        (Qsgd, {"levels": 2**15}, "levels = 32768"),
        (Qsgd, {"levels": 4, "bits": 4}, "give one of them"),
        (Qsgd, {"bucket": -1}, "bucket = -1"),
        (Qsgd, {"room": -0.5}, "room = -0.5"),
        (Qsgd, {"room": math.nan}, "room = nan"),
    ],
)
def test_out_of_range(kind: Any, options: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind.__name__.lower()}: .*{said}"):
        kind(**options)


# the attacker who knows

EVERY = [
    Uniform(),
    Uniform(bits=8),
    Uniform(kappa=0.3),
    Uniform(norm="l2"),
    Uniform(norm="l2", kappa=0.1),
    Qsgd(),
    Qsgd(levels=1),
    Qsgd(norm="l2"),
    Qsgd(bucket=16),
]


def laplacian(scale: float) -> Tensor:
    """20,000 numbers of mean magnitude `scale` beside one that sets the range to 3: with 3 bits the step is 1."""
    drawn = torch.distributions.Laplace(0.0, scale).icdf(torch.rand(20_000, generator=rng(), dtype=torch.float64))
    return torch.cat([drawn.clamp(-3, 3), drawn.new_tensor([3.0])])


@pytest.mark.parametrize("scale", [0.1, 0.25, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("defense", [Uniform(room=1.0), Qsgd(room=1.0)])
def test_the_room_is_what_a_number_is_expected_to_be_off(defense: Defense, scale: float) -> None:
    """Of the numbers that were sent as zero, the most of all where it matters: their root mean square."""
    true = laplacian(scale)
    sent = defense.update({"w": true}, rng())
    cells = defense.surrogate(sent)
    assert isinstance(cells, Cells)
    zero = sent["w"] == 0
    room = cells.high["w"][zero]
    assert room.max() == room.min()
    assert room[0].item() == pytest.approx(true[zero].square().mean().sqrt().item(), rel=0.25)


@pytest.mark.parametrize(("defense", "rounding"), [(Uniform(bits=8, room=1.0), 12), (Qsgd(bits=8, room=1.0), 6)])
def test_among_many_levels_the_doubt_is_that_of_the_rounding(defense: Defense, rounding: float) -> None:
    true = torch.rand(20_000, generator=rng(), dtype=torch.float64)
    sent = defense.update({"w": true}, rng())
    cells = defense.surrogate(sent)
    assert isinstance(cells, Cells)
    step = true.abs().max() / 127
    assert torch.allclose(cells.high["w"] - sent["w"], step / rounding**0.5, rtol=1e-3)
    assert (sent["w"] - true).square().mean().sqrt().item() == pytest.approx(step.item() / rounding**0.5, rel=0.02)


def test_numbers_beyond_the_range_may_have_been_anywhere_beyond_it() -> None:
    true = {"w": torch.tensor([4.0, -9.0, 0.1, 0.2], dtype=torch.float64)}
    cells = Uniform(kappa=0.3).surrogate(Uniform(kappa=0.3).update(true, rng()))
    assert isinstance(cells, Cells)
    assert cells.high["w"].isinf().tolist() == [True, False, False, False]
    assert cells.low["w"].isinf().tolist() == [False, True, False, False]


@pytest.mark.parametrize("defense", [Uniform(room=0.0), Qsgd(room=0.0)])
def test_without_room_knowing_changes_nothing(defense: Defense) -> None:
    assert type(defense.surrogate(defense.update(UPDATE, rng()))) is Defense


@pytest.mark.parametrize("defense", [Uniform(room=1e9), Qsgd(room=1e9)])
def test_inside_the_cells_there_is_no_distance(defense: Defense) -> None:
    sent = defense.update(UPDATE, rng())
    moved = defense.surrogate(sent).update(UPDATE, rng())
    assert all(torch.allclose(moved[name], u, atol=1e-9) for name, u in sent.items())


def test_the_dummy_is_as_far_from_the_sent_as_it_was_from_its_target() -> None:
    """Rotation and scaling: cosine and relative squared distance are kept."""
    dummy, sent = shaken(UPDATE, 2), Uniform().update(UPDATE, rng())
    cells = Uniform().surrogate(sent)
    assert isinstance(cells, Cells)
    target = {name: cells.target(name, u) for name, u in dummy.items()}
    moved = cells.update(dummy, rng())
    assert cosine(moved, sent) == pytest.approx(cosine(dummy, target), rel=1e-9)
    assert apart(moved, sent) / apart(sent) == pytest.approx(apart(dummy, target) / apart(target), rel=1e-9)
    same = turn_toward(dummy, sent, sent)
    assert all(torch.allclose(same[name], u) for name, u in dummy.items())


def shaken(update: Update, seed: int) -> dict[str, Tensor]:
    return {name: u + 0.3 * torch.randn(u.shape, generator=rng(seed), dtype=u.dtype) for name, u in update.items()}


def apart(one: Update, other: Update | None = None) -> float:
    return sum((u - other[name] if other else u).square().sum().item() for name, u in one.items())


def cosine(one: Update, other: Update) -> float:
    inner = sum((u * other[name]).sum().item() for name, u in one.items())
    return inner / math.sqrt(apart(one) * apart(other))


@pytest.mark.parametrize("defense", EVERY)
def test_slopes_are_finite_for_every_client(defense: Defense) -> None:
    def distance(dummy: Tensor, seen: Tensor) -> Tensor:
        return (defense.surrogate({"w": seen}).update({"w": dummy}, rng())["w"] - seen).square().sum()

    seen = torch.stack([defense.update(shaken({"w": UPDATE["w"]}, seed), rng())["w"] for seed in range(2)])
    dummies = torch.stack([shaken({"w": UPDATE["w"]}, seed)["w"] for seed in (7, 8)])
    slopes = vmap(grad(distance))(dummies, seen)
    assert slopes.isfinite().all()
    assert (slopes.flatten(1).norm(dim=1) > 0).all()


@pytest.mark.more
@pytest.mark.parametrize("attack", ["invertgrad", "gradinversion"])
def test_with_few_levels_knowing_the_cells_helps(attack: str) -> None:
    data, defense = photos(size=8, limit=8), Uniform(bits=2)
    model = MODELS["lenet"](classes=data.targets.shape[1], shape=data.shape, mean=tuple(data.mean), std=tuple(data.std))
    private = Batch(*(x.unflatten(0, (-1, 1)) for x in (data.images, data.targets)))
    scenario = Scenario(name="cells", model=model, private=private, names=tuple(f"c{i}" for i in range(8)))
    method, found = ATTACKS[attack](steps=50, tv=1e-2, restarts=1), {}
    for knows in (False, True):
        seen, truth = observe(replace(scenario, threat=ThreatModel(knows_defense=knows)), defense, method, Seed(0))
        got = method.reconstruct(seen, Seed(1))
        found[knows] = peak_signal_to_noise(got.images, truth.private.images).mean().item()
    assert found[True] > found[False]


# order


def test_the_order_of_a_stack_matters() -> None:
    sparse, coarse = TopK(keep=0.1), Qsgd(levels=2)
    one = Stack((sparse, coarse)).update({"w": UPDATE["w"]}, rng())["w"]
    other = Stack((coarse, sparse)).update({"w": UPDATE["w"]}, rng())["w"]
    assert not torch.equal(one, other)
    assert torch.equal(one, coarse.update(sparse.update({"w": UPDATE["w"]}, rng()), rng())["w"])


def test_the_label_of_a_stack_shows_its_order() -> None:
    rows = [{"name": "topk", "keep": 0.1}, {"name": "qsgd", "levels": 2}]
    one, other = (label_of(Choice(name="stack", options={"of": of})) for of in (rows, rows[::-1]))
    assert one.index("topk") < one.index("qsgd")
    assert other.index("qsgd") < other.index("topk")
    assert stack(of=rows) == Stack((TopK(keep=0.1), Qsgd(levels=2)))
