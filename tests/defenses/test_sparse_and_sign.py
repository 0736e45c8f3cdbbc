"""Top-k and the sign: counts, ties, values, and what an attacker who knows them compares."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator
from torch.func import grad, vmap

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.defenses.sign import Sign, SoftSign
from gradveil.defenses.topk import TopK

UPDATE = {
    "conv": torch.randn(6, 3, 3, 3, generator=torch.Generator().manual_seed(0)),
    "bias": 1e-3 * torch.randn(10, generator=torch.Generator().manual_seed(1)),
}
SIZE = 172


def rng() -> Generator:
    return Seed(0).rng()


@pytest.mark.parametrize("keep", [0.01, 0.05, 0.29, 0.5, 1.0])
def test_exactly_k_are_kept_and_they_are_the_largest(keep: float) -> None:
    sent = TopK(keep=keep).update(UPDATE, rng())
    flat, before = (torch.cat([u.flatten() for u in x.values()]) for x in (sent, UPDATE))
    kept = flat != 0
    assert kept.sum() == math.ceil(keep * SIZE)
    assert torch.equal(flat[kept], before[kept])
    assert kept.all() or before[kept].abs().min() > before[~kept].abs().max()


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.95])
def test_of_every_tensor_its_share(sparsity: float) -> None:
    sent = TopK(sparsity=sparsity, scope="tensor").update(UPDATE, rng())
    assert {name: int((u != 0).sum()) for name, u in sent.items()} == {
        name: math.ceil(round((1 - sparsity) * u.numel(), 6)) for name, u in UPDATE.items()
    }
    assert not TopK(sparsity=0.5).update(UPDATE, rng())["bias"].any()  # of the whole update the bias is the smallest


@pytest.mark.parametrize("scope", ["update", "tensor"])
def test_with_ties_there_are_still_k(scope) -> None:
    tied = {"w": torch.tensor([2.0, -2.0, 1.0, 2.0, 2.0])}
    assert TopK(keep=0.4, scope=scope).update(tied, rng())["w"].tolist() == [0, 0, 0, 2, 2]
    assert (TopK(keep=0.3, scope=scope).update({"w": torch.ones(10)}, rng())["w"] != 0).sum() == 3


def test_keep_and_sparsity_say_the_same() -> None:
    one, other = TopK(sparsity=0.9).update(UPDATE, rng()), TopK(keep=0.1).update(UPDATE, rng())
    assert all(torch.equal(one[name], other[name]) for name in UPDATE)
    assert TopK(keep=0.05).count_kept(100) == 5
    assert TopK(sparsity=0.95).count_kept(100) == 5
    assert TopK(keep=1e-6).count_kept(10) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sparsity": 1.0}, "sparsity = 1.0"),
        ({"sparsity": -0.1}, "sparsity = -0.1"),
        ({"keep": 0.0}, "keep = 0.0"),
        ({"keep": 1.1}, "keep = 1.1"),
        ({"keep": math.nan}, "keep = nan"),
        ({"keep": 0.5, "sparsity": 0.4}, "give one of them"),
    ],
)
def test_top_k_out_of_range(options: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=f"topk: .*{said}"):
        TopK(**options)


def test_the_attacker_matches_only_what_was_kept() -> None:
    sent = TopK(keep=0.2).update(UPDATE, rng())
    again = TopK(keep=0.2).surrogate(sent).update(UPDATE, rng())
    assert all(torch.equal(again[name], sent[name]) for name in UPDATE)


# sign


def test_a_sign_is_minus_one_zero_or_one() -> None:
    sent = Sign().update(UPDATE | {"dead": torch.zeros(4)}, rng())
    assert set(torch.cat([u.flatten() for u in sent.values()]).tolist()) == {-1.0, 0.0, 1.0}
    assert all(torch.equal(sent[name], u.sign()) for name, u in UPDATE.items())
    assert not sent["dead"].any()


def test_a_scaled_sign_has_the_mean_magnitude_of_its_tensor() -> None:
    for name, u in Sign(scaled=True).update(UPDATE, rng()).items():
        assert torch.allclose(u.abs(), UPDATE[name].abs().mean().expand_as(u))
        assert torch.equal(u.sign(), UPDATE[name].sign())


def test_the_surrogate_is_tanh_to_the_letter_or_of_the_mean_size() -> None:
    u = 1e-5 * UPDATE["conv"]
    plain, soft, sharp = (SoftSign(sharpness=s).update({"w": u}, rng())["w"] for s in (0.0, 1.0, 1e6))
    assert torch.equal(plain, u.tanh())
    assert torch.allclose(plain, u, rtol=1e-4)  # a straight line: nothing of a sign is left
    assert torch.allclose(soft, (u / u.abs().mean()).tanh())
    assert torch.equal(sharp, u.sign())


@pytest.mark.parametrize("scaled", [False, True])
def test_a_sharp_surrogate_is_the_defense(scaled: bool) -> None:
    sent = Sign(scaled=scaled).update(UPDATE, rng())
    soft = Sign(scaled=scaled, sharpness=1e6).surrogate(sent).update(UPDATE, rng())
    assert all(torch.allclose(soft[name], u) for name, u in sent.items())


def test_the_surrogate_has_slopes_for_every_client_and_none_that_break() -> None:
    def size(u: torch.Tensor) -> torch.Tensor:
        return Sign().surrogate({}).update({"w": u}, rng())["w"].square().sum()

    slopes = vmap(grad(size))(torch.stack([UPDATE["bias"], 1e-6 * UPDATE["bias"], torch.zeros(10)]))
    assert slopes.isfinite().all()
    assert (slopes[:2].norm(dim=1) > 0).all()
    assert torch.allclose(slopes[1], 1e6 * slopes[0], rtol=1e-3)  # the surrogate does not depend on the size


@pytest.mark.parametrize("sharpness", [-1.0, math.inf, math.nan])
def test_sharpness_out_of_range(sharpness: float) -> None:
    with pytest.raises(ConfigError, match="sign: sharpness"):
        Sign(sharpness=sharpness)
