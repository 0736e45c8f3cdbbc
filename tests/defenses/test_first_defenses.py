"""Noise, pruning and stacks: theorems, draws, and what an adaptive attacker gets."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.func import grad, vmap

from gradveil.core.client import local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, GradientFn, Update
from gradveil.defenses import DEFENSES
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.laplacian import Laplacian
from gradveil.defenses.prune import Mask, Prune, zero_smallest
from gradveil.defenses.stack import Stack, stack

UPDATE = {
    "conv.weight": torch.randn(6, 3, 3, 3, generator=torch.Generator().manual_seed(0)),
    "fc.bias": torch.randn(10, generator=torch.Generator().manual_seed(1)),
}


def rng(seed: int = 0) -> Generator:
    return Seed(seed).rng()


def same(a: Update, b: Update) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("defense", "deviation"), [(Gaussian(scale=0.3), 0.3), (Laplacian(scale=0.3), 0.3 * math.sqrt(2))]
)
def test_noise_has_mean_zero_and_the_scale_asked_for(defense: Defense, deviation: float) -> None:
    count = 400_000
    noise = defense.update({"w": torch.full((count,), 5.0)}, rng())["w"] - 5
    assert noise.mean().abs() < 5 * deviation / count**0.5
    assert noise.std().item() == pytest.approx(deviation, rel=0.01)


@pytest.mark.parametrize(("defense", "kurtosis"), [(Gaussian(scale=1.0), 3.0), (Laplacian(scale=1.0), 6.0)])
def test_noise_has_the_tails_of_its_name(defense: Defense, kurtosis: float) -> None:
    noise = defense.update({"w": torch.zeros(400_000)}, rng())["w"]
    assert noise.isfinite().all()
    assert ((noise**4).mean() / (noise**2).mean() ** 2).item() == pytest.approx(kurtosis, rel=0.1)


@pytest.mark.parametrize("defense", [Gaussian(), Laplacian()])
def test_same_seed_same_noise_and_each_tensor_its_own(defense: Defense) -> None:
    once, again, other = (defense.update(UPDATE, rng(seed)) for seed in (0, 0, 1))
    assert same(once, again)
    assert not same(once, other)
    twins = defense.update({"a": torch.zeros(5), "b": torch.zeros(5)}, rng())
    assert not torch.equal(twins["a"], twins["b"])


@pytest.mark.parametrize("defense", [Gaussian(scale=0.0), Laplacian(scale=0.0), Prune(ratio=0.0), Stack(())])
def test_at_zero_strength_nothing_changes(defense: Defense) -> None:
    assert same(defense.update(UPDATE, rng()), UPDATE)


@pytest.mark.parametrize("defense", [Gaussian(), Laplacian(), Prune(), Stack((Prune(), Gaussian()))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_shape_are_kept(defense: Defense, dtype: torch.dtype) -> None:
    for name, u in defense.update({n: u.to(dtype) for n, u in UPDATE.items()}, rng()).items():
        assert u.dtype == dtype
        assert u.shape == UPDATE[name].shape


@pytest.mark.parametrize("ratio", [0.1, 0.29, 0.5, 0.9, 0.99])
def test_the_pruned_count_is_exact_and_the_smallest_go(ratio: float) -> None:
    for name, u in Prune(ratio=ratio).update(UPDATE, rng()).items():
        before, gone = UPDATE[name], u == 0
        assert gone.sum() == round(ratio * before.numel())
        assert torch.equal(u[~gone], before[~gone])
        if gone.any() and not gone.all():
            assert before[gone].abs().max() < before[~gone].abs().min()


def test_of_equal_magnitudes_the_earlier_go() -> None:
    tied = torch.tensor([2.0, -2.0, 1.0, 2.0, 2.0])
    assert Prune(ratio=0.6).update({"w": tied}, rng())["w"].tolist() == [0, 0, 0, 2, 2]


def test_a_gpu_prunes_the_same_numbers() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    tied = torch.randint(-9, 10, (5000,), generator=rng()).float()  # many of equal magnitude
    for count in (1, 2500, 4999):
        assert torch.equal(zero_smallest(tied.cuda(), count).cpu(), zero_smallest(tied, count))


def test_more_numbers_than_quantile_takes() -> None:
    size = 16_777_216 + 10
    many = torch.arange(1.0, size + 1)
    assert (Prune(ratio=0.9).update({"w": many}, rng())["w"] == 0).sum() == round(0.9 * size)


def test_the_surrogate_matches_only_what_was_kept() -> None:
    sent = Prune(ratio=0.5).update(UPDATE, rng())
    assert same(Prune(ratio=0.5).surrogate(sent).update(UPDATE, rng()), sent)


def test_the_mask_of_every_client_under_vmap() -> None:
    dummy = torch.randn(4, 20, generator=rng(5)).requires_grad_()
    sent = torch.stack([Prune(ratio=0.7).update({"w": u}, rng())["w"] for u in torch.randn(4, 20, generator=rng(6))])

    def mismatch(x: Tensor, seen: Tensor) -> Tensor:
        model = Stack((Prune(ratio=0.7), Gaussian())).surrogate({"w": seen})
        return (model.update({"w": x}, rng())["w"] - seen).square().sum()

    got = vmap(grad(mismatch))(dummy, sent)
    assert torch.allclose(got, 2 * (dummy - sent) * (sent != 0))


@pytest.mark.parametrize("defense", [Gaussian(), Laplacian()])
def test_noise_is_modeled_by_its_mean(defense: Defense) -> None:
    assert same(defense.surrogate(UPDATE).update(UPDATE, rng()), UPDATE)


class Marked(Defense):
    """Leaves its factor and its summand at every stage."""

    def __init__(self, factor: float, summand: float) -> None:
        self.mark = lambda x: factor * x + summand

    def model(self, model: nn.Module) -> nn.Module:
        return nn.Sequential(model, nn.Identity())

    def data(self, data: Batch, rng: Generator) -> Batch:
        return Batch(self.mark(data.images), data.labels)

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return self.data(batch, rng)

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        return lambda params, batch: {name: self.mark(g) for name, g in compute(params, batch).items()}

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self.mark(u) for name, u in update.items()}


def test_every_stage_runs_in_order() -> None:
    both, start = Stack((Marked(2.0, 0.0), Marked(1.0, 3.0))), torch.ones(2)
    batch = Batch(start, start)
    expected = torch.full((2,), 5.0)  # 2 * 1 + 3, not 2 * (1 + 3)
    assert torch.equal(both.data(batch, rng()).images, expected)
    assert torch.equal(both.batch(batch, rng()).images, expected)
    assert torch.equal(both.update({"w": start}, rng())["w"], expected)
    assert torch.equal(both.gradient(lambda p, b: {"w": start}, nn.Identity(), rng())({}, batch)["w"], expected)
    assert len(list(both.model(nn.Identity()).modules())) == 5


def test_the_empty_stack_is_no_defense() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    data = Batch(torch.rand(4, 3, 2, 2, generator=rng()), F.one_hot(torch.arange(4) % 3, 3).float())
    training = LocalTraining(steps=3, rate=0.1, batch_size=2)
    plain, stacked = (
        local_update(model, parameters_of(model), data, training, defense, rng()) for defense in (Defense(), Stack(()))
    )
    assert same(plain, stacked)
    assert Stack(()).model(model) is model
    assert same(Stack(()).surrogate(UPDATE).update(UPDATE, rng()), UPDATE)


def test_a_stack_from_a_configuration() -> None:
    rows = [{"name": "prune", "ratio": 0.5}, {"name": "stack", "of": [{"name": "gaussian", "scale": 1e-3}]}]
    assert stack(of=[*rows, Laplacian()]) == Stack(
        (Prune(ratio=0.5), Stack((Gaussian(scale=1e-3),)), Laplacian(scale=1e-2))
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"name": "prun"}, "did you mean 'prune'"),
        ({"ratio": 0.5}, "names no defense"),
        ({"name": "prune", "share": 0.5}, "share"),
        ({"name": "prune", "ratio": 1.5}, "ratio = 1.5"),
    ],
)
def test_a_wrong_stack_says_what_is_wrong(row: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        stack(of=[row])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gaussian", {"scale": -1.0}),
        ("gaussian", {"scale": math.inf}),
        ("laplacian", {"scale": math.nan}),
        ("prune", {"ratio": 1.0}),
        ("prune", {"ratio": -0.1}),
    ],
)
def test_out_of_range(name: str, options: dict) -> None:
    with pytest.raises(ConfigError, match=name):
        DEFENSES[name](**options)


@pytest.mark.parametrize("defense", [Gaussian(scale=0.5), Laplacian(), Prune(ratio=0.25), Stack((Prune(), Gaussian()))])
def test_repr_rebuilds_it(defense: Defense) -> None:
    assert eval(repr(defense)) == defense


def test_mask_is_a_defense_of_its_own() -> None:
    assert Mask({"w": torch.tensor([True, False])}).update({"w": torch.ones(2)}, rng())["w"].tolist() == [1, 0]


def test_an_audit_of_a_stack_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="stack: of: holds no defense"):
        Stack(()).check(nn.Identity())
