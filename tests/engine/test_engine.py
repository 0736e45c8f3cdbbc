"""The engine: a trial is the same alone and among others, keeps its best point, stops and fails on its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
import torch
from scenes import drawn, four_pictures, one_picture, seen_in, smooth, usual
from torch import Tensor

from gradveil.attacks.dlg import dlg
from gradveil.attacks.invertgrad import invertgrad
from gradveil.core.attack import Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.progress import listening
from gradveil.core.seeds import Seed
from gradveil.core.types import Latent
from gradveil.engine import descent
from gradveil.engine.descent import Stop
from gradveil.engine.finish import by_match_and_roughness, by_objective, keep
from gradveil.engine.inversion import Inversion
from gradveil.engine.optimizer import Adam, Sgd
from gradveil.engine.priors.prior import TotalVariation

DOUBLE = Compute(precision="float64")
PLAIN = invertgrad(steps=20, tv=1e-2)
TWICE = invertgrad(steps=20, tv=(1e-3, 1e-1))
BACKENDS = ("loop", "vmap", "sweep")


@pytest.fixture(scope="module")
def seen() -> Observation:
    return seen_in(one_picture(4))


def run(attack: Inversion, seen: Observation, compute: Compute = DOUBLE, seed: int = 0) -> Reconstruction:
    return attack.reconstruct(seen, Seed(seed), compute)


def assert_close(got: Reconstruction, expected: Reconstruction, tolerance: float = 1e-9) -> None:
    assert (got.images - expected.images).abs().max() <= tolerance
    assert (got.loss - expected.loss).abs().max() <= tolerance


def rows(got: Reconstruction, clients: list[int]) -> Reconstruction:
    return replace(
        got,
        images=got.images[clients],
        labels=got.labels[clients],
        found=got.found[clients],
        loss=got.loss[clients],
        converged=None if got.converged is None else got.converged[clients],
        broke=None if got.broke is None else got.broke[clients],
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_alone_is_among_others(seen: Observation, backend) -> None:
    compute = replace(DOUBLE, backend=backend)
    together = run(PLAIN, seen, compute)
    for client in (0, 2):
        assert_close(run(PLAIN, seen.take([client]), compute), rows(together, [client]))


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_any_chunk(seen: Observation, chunk: int) -> None:
    assert_close(run(TWICE, seen, replace(DOUBLE, chunk=chunk)), run(TWICE, seen))


def test_any_order_of_clients(seen: Observation) -> None:
    order = [2, 0, 3, 1]
    assert_close(run(TWICE, seen.take(order)), rows(run(TWICE, seen), order))


@pytest.mark.more
@pytest.mark.parametrize(
    ("backend", "model", "chunk"),
    [
        ("vmap", usual, None),
        ("sweep", smooth, None),
        ("sweep", smooth, 1),
        ("sweep", usual, 1),
    ],
)
def test_one_core_or_two(backend, model, chunk: int | None) -> None:
    seen, compute = seen_in(one_picture(4, model())), replace(DOUBLE, backend=backend, chunk=chunk)
    expected = run(PLAIN, seen, compute)
    with threads(2):
        got = run(PLAIN, seen, compute)
        assert torch.get_num_threads() == 2
    assert_close(got, expected)


def test_same_seed_same_result_and_another_seed_another(seen: Observation) -> None:
    once, again, other = (run(PLAIN, seen, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(once.images, again.images)
    assert torch.equal(once.loss, again.loss)
    assert not torch.equal(once.images, other.images)


@pytest.mark.parametrize(("slow", "steps"), [(float("inf"), [100, 200]), (0.0, list(range(1, 201)))])
def test_progress_is_told(slow: float, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hundred steps, and after every one that takes long."""
    monkeypatch.setattr(descent, "SLOW", slow)
    heard = []
    with listening(lambda done, total: heard.append((done, total))):
        run(invertgrad(steps=200, tv=1e-2), seen_in(one_picture(1)))
    assert heard == [(step, 200) for step in steps]


# restarts


def each_restart(attack: Inversion, seen: Observation) -> list[Reconstruction]:
    """Every restart on its own, as the whole attack would run it."""
    found: list[Reconstruction] = []
    for restart in range(attack.restarts):
        picks = replace(attack, select=lambda images, total, match, r=restart: torch.full((len(images),), r))
        found.append(run(picks, seen))
    return found


def test_the_restart_with_the_lowest_objective_is_kept(seen: Observation) -> None:
    attack = replace(PLAIN, restarts=4, steps=10)
    losses = torch.stack([one.loss for one in each_restart(attack, seen)], 1)
    got = run(attack, seen)
    assert torch.equal(got.loss, losses.amin(1))
    assert len(set(losses.argmin(1).tolist())) > 1  # not always the same one


def test_restarts_are_chosen_by_what_the_attacker_sees() -> None:
    """`select` is given what the engine computed from the observation; no other input exists."""
    seen, given = seen_in(one_picture(3)), []

    def spying(images: Tensor, total: Tensor, match: Tensor) -> Tensor:
        given.append((images, total, match))
        return by_match_and_roughness(images, total, match)

    attack = replace(invertgrad(steps=10, tv=(1e-3, 1e-1, 1e-2)), select=spying)
    got = run(attack, seen)
    (images, total, match) = given[0]
    assert images.shape == (3, 3, 1, 3, 8, 8)
    assert (total > match).all()  # the prior is in one and not in the other
    roughness = torch.stack([TotalVariation().of(one) for one in images])
    by_hand = (match * roughness).argmin(1)
    assert torch.equal(got.images, images[torch.arange(3), by_hand])


def test_selection_by_hand() -> None:
    flat, rough = torch.full((1, 1, 4, 4), 0.5), torch.eye(4)[None, None]
    images = torch.stack([flat, rough, rough])[None]
    total, match = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0.5, 0.2, 0.3]])
    assert by_objective(images, total, match).tolist() == [2]
    assert by_match_and_roughness(images, total, match).tolist() == [0]
    assert by_match_and_roughness(images[:, 1:], total[:, 1:], match[:, 1:]).tolist() == [0]
    assert by_match_and_roughness(images, total, torch.tensor([[0.5, 0.2, 0.001]])).tolist() == [2]  # a blank can lose


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("select", [by_objective, by_match_and_roughness])
def test_a_failed_restart_is_never_chosen(select, bad: float) -> None:
    images = drawn(1, 2, 1, 3, 4, 4)
    score = torch.tensor([[bad, 5.0]]).double()
    assert select(images, score, score).tolist() == [1]


def test_one_weight_of_the_prior_each() -> None:
    """Several weights are dealt out: restart i runs with weight i."""
    seen = seen_in(one_picture(2))
    both = each_restart(replace(TWICE, steps=10), seen)
    for restart, weight in enumerate((1e-3, 1e-1)):
        alone = replace(PLAIN, steps=10, priors=(TotalVariation(weight),), restarts=2)
        assert_close(both[restart], each_restart(alone, seen)[restart])


# best point


def test_the_reported_loss_is_that_of_the_reported_picture(seen: Observation) -> None:
    attack = replace(PLAIN, finish=keep, steps=20, priors=())
    got = run(attack, seen)
    at_it = replace(attack, space=Fixed(got.images), steps=1, optimizer=Sgd(rate=0.0))
    assert torch.allclose(run(at_it, seen).loss, got.loss, rtol=1e-9)


@dataclass(frozen=True)
class Fixed:
    """Starts at given pictures."""

    images: Tensor = field(repr=False)

    def bind(self, seen: Observation, restarts: Tensor | None = None) -> Fixed:
        return self

    def init(self, seed: Seed, name: str, restart: int) -> Latent:
        return {"x": self.images[int(name.rpartition("-")[2])]}

    decode = reveal = smooth = staticmethod(lambda z: z["x"])
    constrain = staticmethod(lambda z: z)


def test_the_truth_has_no_distance() -> None:
    """At the private pictures themselves the dummy update is the update."""
    scenario = four_pictures()
    start = Fixed(scenario.private.images)
    for backend in BACKENDS:
        attack = replace(PLAIN, space=start, steps=1, priors=(), optimizer=Sgd(rate=0.0), finish=keep)
        assert run(attack, seen_in(scenario), replace(DOUBLE, backend=backend)).loss.abs().max() < 1e-12


# failing and stopping, each trial on its own


@pytest.mark.parametrize("attack", [PLAIN, TWICE, dlg(steps=20)], ids=["one", "restarts", "dlg"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_in_one_update_leaves_the_others_untouched(attack: Inversion, backend) -> None:
    seen = seen_in(one_picture(3))
    compute = replace(DOUBLE, backend=backend)
    attack = replace(attack, steps=10)
    clean = run(attack, seen, compute)
    broken = replace(seen, update={name: u.clone() for name, u in seen.update.items()})
    broken.update["conv2.weight"][1, 0, 0, 0, 0] = torch.nan
    got = run(attack, broken, compute)
    assert not got.loss[1].isfinite()
    assert torch.equal(got.images[[0, 2]], clean.images[[0, 2]])
    assert torch.equal(got.loss[[0, 2]], clean.loss[[0, 2]])


def test_a_broken_first_update_does_not_choose_the_back_end_of_the_others() -> None:
    seen = seen_in(one_picture(3))
    broken = replace(seen, update={name: u.clone() for name, u in seen.update.items()})
    for u in broken.update.values():
        u[0] = torch.nan
    attack = replace(PLAIN, steps=5)
    got, clean = run(attack, broken), run(attack, seen)
    assert got.loss.isfinite().tolist() == [False, True, True]
    assert (got.backend, got.notes) == (clean.backend, clean.notes)
    assert torch.equal(got.images[1:], clean.images[1:])


@pytest.mark.parametrize("stop", [Stop(value=0.3), Stop(patience=5, share=0.05)], ids=["value", "patience"])
def test_a_client_that_stops_does_not_change_the_others(stop: Stop) -> None:
    seen = seen_in(one_picture(4, smooth()))
    attack = replace(invertgrad(steps=60, tv=1e-3), stop=stop)
    together = run(attack, seen)
    for client in range(4):
        assert_close(run(attack, seen.take([client])), rows(together, [client]))
    assert not torch.equal(together.loss, run(replace(attack, stop=Stop()), seen).loss)


def test_convergence_is_told() -> None:
    seen = seen_in(one_picture(2, smooth()))
    slow = replace(PLAIN, steps=30, optimizer=Adam(rate=0.03))
    still = replace(PLAIN, steps=30, optimizer=Adam(rate=0.0))
    assert run(slow, seen).converged.tolist() == [False, False]  # type: ignore[union-attr]
    assert run(still, seen).converged.tolist() == [True, True]  # type: ignore[union-attr]


# memory


@dataclass(frozen=True, kw_only=True)
class Cramped(Inversion):
    """Has room for two trials at once."""

    error: type[Exception] = torch.OutOfMemoryError
    says: str = "out of memory"
    sizes: list[int] = field(default_factory=list, compare=False)

    def attack(self, descent, start: Latent, stepper):
        trials = len(next(iter(start.values())))
        self.sizes.append(trials)
        if trials > 2:
            raise self.error(self.says)
        return super().attack(descent, start, stepper)


def cramped(**changes) -> Cramped:
    return Cramped(**{**vars(replace(TWICE, steps=10)), **changes})


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 20 GiB"),
        (RuntimeError, "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes."),
    ],
)
def test_out_of_memory_halves_the_chunk_and_changes_nothing(seen: Observation, error, says: str) -> None:
    attack = cramped(error=error, says=says)
    got = run(attack, seen, replace(DOUBLE, chunk=8))
    assert attack.sizes == [8, 4, 2, 2, 2, 2]
    assert_close(got, run(replace(TWICE, steps=10), seen))


def test_other_errors_are_raised(seen: Observation) -> None:
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run(cramped(error=RuntimeError, says="shapes do not match"), seen, replace(DOUBLE, chunk=8))
    with pytest.raises(ValueError, match="can't allocate memory"):
        run(cramped(error=ValueError, says="can't allocate memory"), seen, replace(DOUBLE, chunk=8))


def test_labels_are_inferred_where_they_are_not_given() -> None:
    scenario = one_picture(3)
    hidden = replace(seen_in(scenario), labels=None)
    got = run(replace(PLAIN, steps=5), hidden)
    assert torch.equal(got.labels, scenario.private.labels)
    assert_close(got, run(replace(PLAIN, steps=5), seen_in(scenario)))
