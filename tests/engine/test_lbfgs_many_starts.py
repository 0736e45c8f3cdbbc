"""L-BFGS in float32 from a thousand starts: whatever the start, what is kept is a number."""

from __future__ import annotations

import torch
from scenes import seen_in
from test_lbfgs import minimize
from torch import Tensor

from gradveil.attacks.dlg import dlg
from gradveil.attacks.lbfgs_cosine import lbfgs_cosine
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.photos import photos
from gradveil.engine.lbfgs import Lbfgs
from gradveil.models import MODELS

STARTS = 1000


def layered(x: Tensor) -> Tensor:
    """A match in small: how far sigmoid features of 12 numbers lie from those of a target, relative."""
    rng = torch.Generator().manual_seed(1)
    first, second = (torch.randn(*shape, generator=rng) for shape in ((16, 12), (8, 16)))

    def features(x: Tensor) -> Tensor:
        return torch.sigmoid(x @ first.T) @ second.T

    target = features(torch.randn(1, 12, generator=rng))
    return (features(x) - target).square().sum(-1) / target.square().sum()


def test_a_thousand_starts_give_a_thousand_numbers() -> None:
    """Some far away, where all is flat or steep, some at the bottom of nothing."""
    start = torch.randn(STARTS, 12, generator=torch.Generator().manual_seed(2))
    start = start * torch.logspace(-6, 4, STARTS)[:, None]
    begin = layered(start)
    for optimizer in (Lbfgs(), Lbfgs(rounding=1e-6)):
        end, state, best = minimize(layered, start, 120, optimizer)
        assert end.isfinite().all()
        assert best.isfinite().all()
        assert all(x.isfinite().all() for name, x in state.items() if name in ("s", "y", "rho", "direction", "base.z"))
        assert (best <= begin).all()
        ordinary = start.abs().amax(-1) < 10
        assert (best[ordinary] < 0.1 * begin[ordinary]).float().mean() > 0.9


def test_fifty_starts_on_lenet_give_fifty_numbers() -> None:
    data = photos(size=16, limit=1)
    model = MODELS["lenet"](classes=data.targets.shape[1], shape=data.shape, mean=data.mean, std=data.std)
    private = Batch(data.images[:, None], data.targets[:, None])
    seen = seen_in(Scenario(name="lenet", model=model, private=private, names=("one",)))
    for attack in (dlg(steps=40, restarts=50), lbfgs_cosine(steps=40, restarts=50)):
        ends: list[Tensor] = []

        def watching(images: Tensor, total: Tensor, match: Tensor, ends: list[Tensor] = ends) -> Tensor:
            ends.append(total)
            assert images.isfinite().all()
            return total.argmin(1)

        got = type(attack)(**{**vars(attack), "select": watching}).reconstruct(seen, Seed(0))
        assert ends[0].shape == (1, 50)
        assert ends[0].isfinite().all()
        assert got.loss.isfinite().all()
