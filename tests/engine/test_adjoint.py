"""Local steps differentiated one at a time: the same slopes as all at once, in the memory of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from scenes import drawn, scene, seen_in, smooth, usual
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.defenses import DEFENSES
from gradveil.engine.backend import choose
from gradveil.engine.distance import L2, Cosine
from gradveil.engine.matcher import Loop, OneTrial, Vmap

FIVE = LocalTraining(steps=5, rate=0.05)
TRAININGS = {
    "plain": FIVE,
    "minibatches": replace(FIVE, batch_size=2),
    "an uneven epoch": replace(FIVE, batch_size=3),
    "momentum": replace(FIVE, momentum=0.9, steps=3),
    "weight decay": replace(FIVE, weight_decay=0.1, momentum=0.5, steps=3),
    "one step": replace(FIVE, steps=1),
}


def round_of(training: LocalTraining, defense: Defense | None = None, clients: int = 2) -> Observation:
    threat = ThreatModel(knows_defense=defense is not None)
    return seen_in(scene(smooth(), clients, 4, training=training, threat=threat), defense or Defense())


def close(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> bool:
    return all((a - b).norm() <= 1e-12 * b.norm() for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("matcher", [Loop, Vmap])
def test_step_by_step_is_all_at_once(name: str, matcher: Any) -> None:
    seen, fed = round_of(TRAININGS[name]), drawn(2, 4, 3, 8, 8, seed=3)
    one = OneTrial.of(seen, L2())
    whole = Loop(replace(one, step_by_step=False))
    labels = drawn(2, 4, 5, seed=5).softmax(-1)
    by_steps = matcher(replace(one, step_by_step=True))
    assert close(by_steps(fed), whole(fed))
    assert close(by_steps.joint(fed, labels), whole.joint(fed, labels))


def test_it_is_taken_for_several_steps_alone() -> None:
    assert OneTrial.of(round_of(FIVE), L2()).step_by_step
    assert not OneTrial.of(round_of(replace(FIVE, steps=1)), L2()).step_by_step


@pytest.mark.parametrize(
    "defense", [("uniform", {}), ("qsgd", {"bits": 3}), ("sign", {}), ("topk", {"sparsity": 0.5}),
                ("soteria", {"rate": 0.5}), ("fedcdp", {"clip": 0.5, "noise": 0.0}),
                ("precode", {"size": 4}), ("prune", {"ratio": 0.5})],
)  # fmt: skip
def test_surrogates_of_known_defenses_go_along(defense: tuple[str, dict[str, Any]]) -> None:
    name, options = defense
    seen, fed = round_of(replace(FIVE, steps=3), DEFENSES[name](**options)), drawn(2, 4, 3, 8, 8, seed=3)
    one = OneTrial.of(seen, Cosine())
    assert close(Vmap(one)(fed), Loop(replace(one, step_by_step=False))(fed))


def test_batch_statistics_go_along() -> None:
    training = replace(FIVE, steps=3, batchnorm="batch")
    seen, fed = seen_in(scene(usual(), 2, 4, training=training)), drawn(2, 4, 3, 8, 8, seed=3)
    one = OneTrial.of(seen, L2(relative=True))
    assert close(Vmap(one)(fed), Loop(replace(one, step_by_step=False))(fed))


def test_several_steps_run_on_vmap_and_say_why() -> None:
    chosen = choose(round_of(FIVE), L2(), "auto")
    assert chosen.name == "vmap"
    assert chosen.notes == ("sweep cannot run this: the client takes 5 local steps",)


def test_a_further_step_costs_one_more_set_of_weights() -> None:
    """All at once, every step keeps its graph, here many times as large."""
    rounds, fed = [round_of(replace(FIVE, steps=steps), clients=1) for steps in (2, 8)], drawn(1, 4, 3, 8, 8, seed=3)
    weights = sum(p.numel() * p.element_size() for p in rounds[0].model.parameters())

    def growth(step_by_step: bool) -> float:
        trials = [replace(OneTrial.of(seen, L2()), step_by_step=step_by_step) for seen in rounds]
        small, large = (peak_of(partial(Vmap(one), fed)) for one in trials)
        return (large - small) / 6 / weights

    assert growth(step_by_step=True) <= 1.1
    assert growth(step_by_step=False) > 5


class Alive(TorchDispatchMode):
    """The most bytes that were held at once by tensors made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, Tensor):
                storage = x.untyped_storage()
                self.held.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.held = {key: entry for key, entry in self.held.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.held.values()))
        return out


def peak_of(evaluate: Callable[[], object]) -> int:
    with Alive() as alive:
        evaluate()
    return alive.peak


def test_the_account_of_bytes_is_right() -> None:
    def once_and_again() -> None:
        for _ in range(3):
            torch.ones(1000).neg()  # 4,000 bytes each; one pair at a time

    assert peak_of(once_and_again) == 8000
