"""The truth through the attacker's client: healthy cells pass, and what is wrong between client and server fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean

import pytest
import torch
from oracle_cells import cell_of, look, records_of, scene
from torch import Generator, Tensor

from gradveil.audit.oracle import ANOTHER, explain
from gradveil.audit.own_client import share_explained
from gradveil.audit.verdict.oracle import Oracle, check_oracle, find_failure
from gradveil.core.defense import Defense
from gradveil.core.server import observe
from gradveil.core.types import Batch, Update
from gradveil.defenses import DEFENSES
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.oasis import Oasis
from gradveil.defenses.prune import Prune


def check(*args, **settings) -> Oracle:
    scenario = args[1]
    return check_oracle(records_of(look(*args, **settings), len(scenario.names)))


def test_an_update_explains_itself_and_nothing_explains_nothing():
    update = {"w": torch.tensor([3.0, 4.0])}
    assert share_explained(update, update) == 1
    assert share_explained(update, {"w": torch.zeros(2)}) == 0
    assert share_explained(update, {"w": torch.tensor([-3.0, -4.0])}) == -3  # scale and sign matter
    assert share_explained({"w": torch.zeros(2)}, update) == 0


def test_only_what_the_surrogate_keeps_counts():
    update = {"w": torch.ones(2), "random": torch.ones(2)}
    assert share_explained(update, {"w": torch.ones(2)}) == 1


NO_DEFENSE = Defense()
SCENES = {
    "one picture": scene(),
    "a batch": scene(examples=4),
    "local steps": scene(examples=4, steps=3, rate=0.1),
    "minibatches": scene(examples=4, steps=3, rate=0.1, batch_size=2),
}
HEALTHY = {
    "none": Defense(),
    "gaussian": Gaussian(relative=1.0),
    "strong noise": Gaussian(relative=30.0),
    "prune": Prune(ratio=0.9),
    "oasis": Oasis(),
    "uniform": DEFENSES["uniform"](),
    "qsgd": DEFENSES["qsgd"](),
    "sign": DEFENSES["sign"](),
    "dpsgd": DEFENSES["dpsgd"](),
    "soteria": DEFENSES["soteria"](),
    "precode": DEFENSES["precode"](size=8),
    "ats": DEFENSES["ats"](policy="3-1-7", library="ats-code"),
}


@pytest.mark.parametrize("where", SCENES)
@pytest.mark.parametrize("defense", HEALTHY)
def test_a_healthy_cell_passes(defense: str, where: str):
    found = check(HEALTHY[defense], SCENES[where])
    assert found.passed, found.message
    assert found.clients == 4


@pytest.mark.parametrize("where", SCENES)
@pytest.mark.parametrize("defense", ["none", "prune", "oasis"])
def test_what_draws_nothing_is_explained_whole_and_never_again(defense: str, where: str):
    found = check(HEALTHY[defense], SCENES[where])
    assert found.truth == pytest.approx(1, abs=1e-6)
    assert found.truth_again is None


def test_sums_of_clients_that_train_on_minibatches_are_explained_almost_whole():

    scenario = replace(scene(examples=8, steps=2, rate=0.1, batch_size=2), aggregate=2)
    assert check(Defense(), scenario).truth == pytest.approx(1, abs=0.01)


def half(like: Tensor) -> Tensor:
    return (torch.arange(like.numel()) < like.numel() / 2).view_as(like)


@pytest.mark.parametrize(
    "fault",
    [
        lambda update: {name: u.roll(1, 0) for name, u in update.items()},
        lambda update: {name: torch.zeros_like(u) for name, u in update.items()},
        lambda update: {name: 10 * u for name, u in update.items()},
        lambda update: {name: -u for name, u in update.items()},
        lambda update: {name: u * half(u[0]) for name, u in update.items()},
        lambda update: {name: u[:1].expand_as(u) for name, u in update.items()},
    ],
    ids=["rolled", "zeroed", "times 10", "negated", "truncated", "all alike"],
)  # fmt: skip
@pytest.mark.parametrize("defense", ["none", "gaussian", "prune", "oasis", "uniform", "dpsgd-1", "sign"])
def test_an_update_that_is_not_the_clients_fails(fault, defense: str):
    fails = {**HEALTHY, "dpsgd-1": DEFENSES["dpsgd"](noise=0.05)}
    found = check(fails[defense], scene(), fault=fault)
    assert found.passed is False, found


@pytest.mark.parametrize("clients", [4, 8])
def test_an_update_of_another_model_fails(clients: int):
    scenario, stale = scene(clients), scene(clients)
    with torch.no_grad():
        for parameter in stale.model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    cell = cell_of(Defense(), stale)
    late = observe(stale, Defense(), cell.method, cell.observed)[0].update
    assert check(Defense(), scenario, fault=lambda update: late).passed is False


@dataclass(frozen=True)
class Permutes(Defense):
    """Without saying so."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u.flatten().flip(0).view_as(u) for name, u in update.items()}


@dataclass(frozen=True)
class Negates(Defense):
    def update(self, update: Update, rng: Generator) -> Update:
        return {name: -u for name, u in update.items()}


@dataclass(frozen=True)
class Constant(Defense):
    """The surrogate of a defense that takes no notice of the pictures."""

    value: float = 0.0

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: torch.full_like(u, self.value) for name, u in update.items()}


@dataclass(frozen=True)
class Modeled(Gaussian):
    """Noise, and a surrogate that is something else."""

    as_what: Defense = NO_DEFENSE

    def surrogate(self, seen: Update) -> Defense:
        return self.as_what


@pytest.mark.parametrize("defense", [Permutes(), Negates(), Modeled(scale=0.0, as_what=Constant()),
                                     Modeled(scale=0.01, as_what=Constant(0.1)), Modeled(scale=0.01, as_what=Negates()),
                                     Modeled(scale=0.01, as_what=Permutes())])  # fmt: skip
@pytest.mark.parametrize("examples", [1, 4])
def test_a_surrogate_that_is_not_the_defense_fails(defense: Defense, examples: int):
    found = check(defense, scene(examples=examples))
    assert found.passed is False, found


def test_a_reconstruction_that_explains_more_than_the_truth_is_a_wrong_client():
    """The client trains on mirrored pictures and keeps that to itself; here nobody has seen what was fed."""
    scenario = scene()
    mirrored = Batch(scenario.private.images.flip(-1), scenario.private.labels)

    found = records_of(look(Mirrors(), replace(scenario), guess=mirrored))
    hidden = [replace(r, explained={**r.explained, "truth": r.explained[ANOTHER]}) for r in found]
    result = check_oracle(hidden)
    assert (result.passed, result.failure) == (False, "model")
    assert result.message.startswith("guess (adaptive) on defended: its reconstructions explain 100 % of the updates")


@dataclass(frozen=True)
class Mirrors(Defense):
    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return Batch(batch.images.flip(-1), batch.labels)


def test_noise_that_a_reconstruction_has_fitted_is_no_wrong_client():
    """It explains the old update better than the truth does, and a new one worse."""
    rows = [{"truth": 0.3, "reconstruction": 0.6, "truth_again": 0.3, "reconstruction_again": 0.1}] * 4

    records = [replace(r, explained=row) for r, row in zip(records_of(look(Defense(), scene())), rows, strict=True)]
    assert check_oracle(records).passed


def test_nothing_measured_is_neither_passed_nor_failed():

    records = [replace(record, explained={}) for record in records_of(look(Defense(), scene()))]
    found = check_oracle(records)
    assert found.passed is None
    assert "not measured" in found.message


@dataclass(frozen=True)
class Breaks(Defense):
    """An informed attacker's model that raises."""

    def surrogate(self, seen: Update) -> Defense:
        raise RuntimeError("no such thing")


def test_an_oracle_that_cannot_run_says_so_and_fails_no_trial():
    found = look(Breaks(), scene())
    assert found.of(0) == {}
    assert found.notes == ("oracle: RuntimeError: no such thing",)


@dataclass(frozen=True)
class DrawsElsewhere(Defense):
    """Noise from a stream that is not its own, so that no round can be played again."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: u + 0.3 * u.norm() / u.numel() ** 0.5 * torch.randn_like(u) for name, u in update.items()}


def test_where_no_round_can_be_played_again_the_spread_over_clients_decides():
    assert check(DrawsElsewhere(), scene()).passed
    rolled = check(DrawsElsewhere(), scene(), fault=lambda update: {name: u.roll(1, 0) for name, u in update.items()})
    assert (rolled.passed, rolled.failure) == (False, "received")


def test_one_swapped_pair_among_eight_is_enough():
    def swap(update: Update) -> Update:
        order = [1, 0, *range(2, 8)]
        return {name: u[order] for name, u in update.items()}

    found = check(DEFENSES["dpsgd"](), scene(8), fault=swap)
    assert (found.passed, found.failure) == (False, "received")
    assert "2 of 8 updates are not what their clients compute" in found.message


def test_wrong_labels_in_the_hands_of_the_attacker_fail():
    scenario = scene()
    cell = cell_of(Defense(), scenario)
    seen, truth = observe(scenario, Defense(), cell.method, cell.observed)
    assert seen.labels is not None
    wrong = replace(seen, labels=seen.labels.roll(1, 0))
    found = explain(cell, wrong, truth, cell.method.reconstruct(wrong, cell.attacked))
    assert check_oracle(records_of(found)).failure == "given"


def test_fresh_pictures_in_every_step_are_explained_whole():
    """Each local step draws other transformations; the truth is what was fed in each of them."""
    scenario = scene(examples=4, steps=5, rate=0.1, batch_size=2)
    assert check(DEFENSES["ats"](), scenario).truth == pytest.approx(1, abs=1e-6)


@dataclass(frozen=True)
class First(Defense):
    """Keeps the first numbers of every tensor alone."""

    share: float

    def update(self, update: Update, rng: Generator) -> Update:
        kept = {
            name: (torch.arange(u.numel()) < max(1, self.share * u.numel())).view_as(u) for name, u in update.items()
        }
        return {name: u * kept[name] for name, u in update.items()}


@dataclass(frozen=True)
class OnlyLast(Defense):
    """Leaves all but the last bias out of the match."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {"3.bias": update["3.bias"]}


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_surrogate_that_explains_less_than_none_fails(noise: float):
    found = check(Modeled(scale=noise, as_what=First(0.01)), scene(), guess=scene().private)
    assert (found.passed, found.failure) == (False, "plain")


def test_a_match_that_cannot_tell_pictures_apart_fails():
    found = check(Modeled(scale=0.0, as_what=OnlyLast()), scene(), guess=nearly(scene().private))
    assert (found.passed, found.failure) == (False, "blind")


def nearly(batch: Batch) -> Batch:
    """Other pictures, whose last bias has nearly the same gradient."""
    rng = torch.Generator().manual_seed(2)
    return Batch(batch.images + 1e-4 * torch.randn(batch.images.shape, generator=rng), batch.labels)


@pytest.mark.parametrize("change", [{"steps": 5}, {"rate": 0.01}, {"rate": 100.0}])
def test_an_attacker_with_the_wrong_training_fails(change: dict[str, float]):
    scenario = scene()
    cell = cell_of(Defense(), scenario)
    seen, truth = observe(scenario, Defense(), cell.method, cell.observed)
    wrong = replace(seen, training=replace(seen.training, **change))
    found = explain(cell, wrong, truth, cell.method.reconstruct(wrong, cell.attacked))
    assert check_oracle(records_of(found)).failure == "given"


@pytest.mark.parametrize("defense", ["none", "gaussian", "ats"])
def test_scores_about_another_clients_pictures_fail(defense: str):
    scenario, own = scene(), HEALTHY[defense]
    cell = cell_of(own, scenario)
    seen, truth = observe(scenario, own, cell.method, cell.observed)
    other = replace(truth, private=Batch(*(x.roll(1, 0) for x in truth.private)))
    found = explain(cell, seen, other, cell.method.reconstruct(seen, cell.attacked))
    assert check_oracle(records_of(found)).failure == "given"


@dataclass(frozen=True)
class Silent(Defense):
    """Sends the same whatever it trains on, and says so."""

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: torch.ones_like(u) for name, u in update.items()}

    def surrogate(self, seen: Update) -> Defense:
        return self


@dataclass(frozen=True)
class Gray(Defense):
    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return Batch(0 * batch.images + 0.5, batch.labels)

    def surrogate(self, seen: Update) -> Defense:
        return self


@dataclass(frozen=True)
class Distorts(Defense):
    """Whoever knows how can undo it; its author says that knowing it changes nothing."""

    change: Callable[[Tensor, Generator], Tensor]

    def update(self, update: Update, rng: Generator) -> Update:
        return {name: self.change(u, rng) for name, u in update.items()}

    def surrogate(self, seen: Update) -> Defense:
        return Defense()


def secret(u: Tensor) -> Tensor:
    return torch.randn(u.shape, generator=torch.Generator().manual_seed(u.numel()))


DISTORTED = {
    "a constant is added": lambda u, rng: u + 10 * secret(u),
    "nearly all is a constant": lambda u, rng: 1 + 1e-3 * u,
    "every number has a factor": lambda u, rng: u * (2 * secret(u)).exp(),
    "a million times": lambda u, rng: 1e6 * u,
    "a constant and noise": lambda u, rng: u + 10 * secret(u) + torch.randn(u.shape, generator=rng),
}


@pytest.mark.parametrize("where", ["one picture", "a batch"])
@pytest.mark.parametrize("change", DISTORTED)
def test_what_comes_in_every_draw_and_is_not_explained_is_not_noise(change: str, where: str):
    """The truth explains hardly anything, and so does noise: no reconstruction explains more."""
    found = check(Distorts(DISTORTED[change]), SCENES[where], guess=SCENES[where].private)
    assert (found.passed, found.failure) == (False, "lacking"), found
    assert "the true pictures explain" in found.message


@pytest.mark.parametrize("where", SCENES)
@pytest.mark.parametrize("defense", HEALTHY)
def test_noise_does_not_come_again_and_what_is_modeled_is_explained(defense: str, where: str):
    numbers = look(HEALTHY[defense], SCENES[where]).numbers
    assert all(one["repeated"] < 0.4 for one in numbers)
    if defense != "sign":
        assert fmean(one["repeated"] for one in numbers) < 0.05


@pytest.mark.parametrize("where", ["one picture", "a batch"])
@pytest.mark.parametrize("kept", [0.3, 0.1])
def test_a_client_that_leaves_out_most_numbers_is_not_one_that_adds_noise(kept: float, where: str):
    """Scaled so that its mean is right: what is left unexplained never comes again. But the zeros are there to see."""
    drops = Distorts(lambda u, rng: u / kept * (torch.rand(u.shape, generator=rng) < kept))
    found = check(drops, SCENES[where], guess=SCENES[where].private)
    assert (found.passed, found.failure) == (False, "zeroed"), found
    assert "came as exact zeros" in found.message


@pytest.mark.parametrize("where", SCENES)
@pytest.mark.parametrize(
    "defense", [*HEALTHY.values(), DEFENSES["qsgd"](levels=1), DEFENSES["uniform"](bits=2), DEFENSES["topk"]()]
)
def test_what_is_rounded_to_zero_is_little(defense: Defense, where: str):
    assert all(one["zeroed"] < 0.4 for one in look(defense, SCENES[where]).numbers)


def test_one_random_number_for_the_whole_update_is_noise():
    """Few draws of few numbers: their mean may be far from zero by chance, and their spread says so."""
    odd = [{"truth": 0.5, "repeated": value} for value in (4.0, 0.0, 0.0, 0.0)]
    assert find_failure(odd) == ""
    assert find_failure([{"truth": 0.4, "repeated": 0.6}] * 4) == "lacking"
    assert find_failure([{"truth": 0.6, "repeated": 0.4}] * 4) == ""
    assert find_failure([{"truth": 0.4, "repeated": 0.6, "alike": 1.0}] * 4) == ""
    assert find_failure([{"truth": 0.4, "zeroed": 0.6}] * 4) == "zeroed"
    assert find_failure([{"truth": 0.4, "zeroed": 0.5}] * 4) == ""


@pytest.mark.parametrize("defense", [Silent(), Gray()])
def test_a_client_that_gives_nothing_away_is_not_a_wrong_one(defense: Defense):
    found = records_of(look(defense, scene()))
    assert check_oracle(found).passed
    assert not any(record.flags for record in found)


def test_two_clients_that_differ_much_prove_nothing():
    """Of one client alone the difference decides; of two their spread does."""
    far, near = {"truth": 0.6, "reconstruction": 0.9}, {"truth": 0.2, "reconstruction": 0.2}
    assert find_failure([far]) == "model"
    assert find_failure([far, near]) == ""
    assert find_failure([far, far]) == "model"
