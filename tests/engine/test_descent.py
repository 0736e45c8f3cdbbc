"""The descent of a chunk on problems of one number: each trial keeps its best point and stops on its own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from gradveil.core.types import Latent
from gradveil.engine.descent import Descent, Objective, Stop, best_of, eager
from gradveil.engine.optimizer import Adam, Sgd


@dataclass(frozen=True)
class Scripted:
    """An optimizer that walks along given values, whatever the gradient says."""

    path: tuple[float, ...]

    def init(self, z: Latent) -> dict[str, Tensor]:
        return {"at": torch.zeros_like(z["x"][:, 0])}

    def step(self, z: Latent, value: Tensor, grads: Latent, state, progress: Tensor):
        at = state["at"] + 1
        to = torch.tensor(self.path, dtype=z["x"].dtype)[at.long().clamp_max(len(self.path) - 1)]
        return {"x": to[:, None].expand_as(z["x"])}, {"at": at}


class Line:
    """The space of one number."""

    decode = smooth = reveal = staticmethod(lambda z: z["x"])

    def constrain(self, z: Latent) -> Latent:
        return z


def square(fed: Tensor) -> tuple[Tensor, Tensor]:
    return fed.square().sum(1), 2 * fed


def descended(optimizer, start: Tensor, steps: int, stop: Stop = Stop(), matcher=square):
    return Descent(Objective(matcher, Line(), ()), optimizer, steps, stop).run({"x": start}, eager)  # type: ignore[arg-type]


def test_the_best_point_is_kept_and_not_the_last() -> None:
    end = descended(Scripted((9.0, 3.0, 1.0, 5.0, 7.0)), torch.full((2, 1), 9.0), 4)
    assert best_of(end)["x"].flatten().tolist() == [1.0, 1.0]
    assert end["total"].tolist() == end["match"].tolist() == [1.0, 1.0]


def test_the_last_point_counts_too() -> None:
    end = descended(Scripted((9.0, 3.0, 2.0)), torch.full((1, 1), 9.0), 2)
    assert best_of(end)["x"].item() == 2.0


def test_a_value_that_becomes_nan_ends_its_trial_at_its_best_point() -> None:
    def breaks(fed: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = square(fed)
        return torch.where(fed[:, 0] == 5.0, torch.nan, value), slope

    start = torch.tensor([[9.0], [9.0]])
    end = descended(Scripted((9.0, 3.0, 5.0, 1.0)), start, 3, matcher=breaks)
    assert best_of(end)["x"].flatten().tolist() == [3.0, 3.0]
    assert end["done"].all()
    assert end["z.x"].flatten().tolist() == [5.0, 5.0]  # it stays where it broke


def test_stop_at_a_value_freezes_only_that_trial() -> None:
    start = torch.tensor([[2.0], [100.0]]).double()
    free = descended(Sgd(rate=0.1, momentum=0.0, nesterov=False), start, 30)
    end = descended(Sgd(rate=0.1, momentum=0.0, nesterov=False), start, 30, Stop(value=0.5))
    assert end["done"].tolist() == [True, True]
    points = [2 * 0.8**i for i in range(30)]
    assert end["z.x"][0].item() == pytest.approx(next(x for x in points if x * x < 0.5))
    one_slow = descended(Sgd(rate=0.1, momentum=0.0, nesterov=False), start, 8, Stop(value=0.5))
    assert one_slow["done"].tolist() == [True, False]
    assert one_slow["z.x"][1].item() == pytest.approx(100 * 0.8**8)
    assert free["z.x"][0].item() == pytest.approx(2 * 0.8**30)


def test_stop_by_patience_freezes_only_the_trial_that_rests() -> None:
    def floor(fed: Tensor) -> tuple[Tensor, Tensor]:
        """The first trial falls to 4 and rests there."""
        value, slope = square(fed)
        level = torch.tensor([4.0, 0.0], dtype=value.dtype)
        return torch.maximum(value, level), slope

    start = torch.tensor([[3.0], [100.0]]).double()
    end = descended(Sgd(rate=0.05, momentum=0.0, nesterov=False), start, 20, Stop(patience=3), matcher=floor)
    assert end["done"].tolist() == [True, False]
    reached = next(i for i in range(20) if (3 * 0.9**i) ** 2 <= 4)
    assert end["z.x"][0].item() == pytest.approx(3 * 0.9 ** (reached + 3))
    assert end["z.x"][1].item() == pytest.approx(100 * 0.9**20)


def test_all_done_ends_the_run() -> None:
    calls = []

    def counted(fed: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(1)
        return square(fed)

    descended(Adam(rate=0.0), torch.ones(2, 1), 1000, Stop(patience=2), matcher=counted)
    assert len(calls) == 101  # looked after a hundred, and once more at the end
