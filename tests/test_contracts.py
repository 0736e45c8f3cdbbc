"""What every row of the catalogues promises. A new method is found by itself; a row here says what else it needs."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch
from generator_files import tiny_generator
from inverter_files import tiny_inverters
from scenes import (
    CLASSES,
    MEAN,
    NO_DEFENSE,
    SHAPE,
    STD,
    Onlooker,
    as_float32,
    drawn,
    four_pictures,
    perceptron,
    scene,
    seen_in,
    settled,
    smooth,
)
from torch import Tensor, nn

import gradveil.defenses
from gradveil.attacks import ATTACKS
from gradveil.config import AuditConfig, Choice, dumps, from_tables
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.check import options_of
from gradveil.core.client import parameters_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch, Update
from gradveil.data.photos import photos
from gradveil.defenses import DEFENSES
from gradveil.defenses.ats import Ats
from gradveil.defenses.loda.loda import Loda
from gradveil.defenses.mixup import Mixup
from gradveil.defenses.oasis import Oasis
from gradveil.engine.backend import choose
from gradveil.engine.distance import Cosine
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.models import MODELS
from gradveil.models.normalize import Normalize
from gradveil.models.start import weights_from
from gradveil.models.vit import vit

DOUBLE = Compute(precision="float64")


def logistic() -> nn.Module:
    """One linear layer and nothing else."""
    with weights_from(3):
        return nn.Sequential(Normalize(MEAN, STD), nn.Flatten(), nn.Linear(192, CLASSES)).double()


TINY_LODA = {"extractor": "lenet:untrained", "layers": "all", "steps": 3, "cache": False}
# in [0, 1]: in the default units c = 0.1 pushes 16 times as hard, which is no longer mild
MILD_LODA = Loda(extractor="lenet:untrained", layers="all", c=0.1, steps=60, rate=0.08, units="unit", cache=False)
EITHER_SIDE = Ats(policy="0", library=("shearX2",))
DRAWN = {"generator": tiny_generator(), "inner": "invertgrad:steps=200,tv=[1e-4,1e-2]", "steps": 150, "restarts": 1}
BRIEFLY_DRAWN = DRAWN | {"inner": "rog:steps=10,factor=2", "steps": 8, "restarts": 2}


def patches() -> nn.Module:
    """A small transformer over four patches."""
    return vit(width=12, heads=2, depth=1, classes=CLASSES, shape=SHAPE, seed=4, mean=MEAN, std=STD).double()


@dataclass(frozen=True, kw_only=True)
class AttackRow:
    """What an attack is tested with. One without a row here is tested with few steps and what it requires."""

    easy: dict[str, Any] = field(default_factory=dict)  # options that succeed on the easy scene
    short: dict[str, Any] = field(default_factory=dict)  # options that end soon
    model: Callable[[], nn.Module] = smooth
    single: bool = False  # it works on models of one layer alone
    defense: Defense = NO_DEFENSE  # one that the attacker must know to have anything to do

    def scene(self, clients: int, examples: int = 1) -> Scenario:
        threat = ThreatModel(knows_defense=self.defense is not NO_DEFENSE, may_plant=True)
        return scene(self.model(), clients, examples, threat=threat)


LISTED = {
    "autoattack": AttackRow(easy={"steps": 150}, short={"steps": 20}),
    "invertgrad": AttackRow(easy={"steps": 200, "tv": [1e-4, 1e-2]}, short={"steps": 30, "tv": [1e-4, 1e-2]}),
    "headless": AttackRow(easy={"steps": 200, "tv": [1e-4, 1e-2]}, short={"steps": 30, "tv": [1e-4, 1e-2]}),
    "invertgrad-unsigned": AttackRow(easy={"steps": 200, "tv": [1e-4, 1e-2]}, short={"steps": 30, "tv": [1e-4, 1e-2]}),
    "coarse-to-fine": AttackRow(easy={"steps": 150}, short={"steps": 30}),
    "portfolio": AttackRow(easy={"steps": 160}, short={"steps": 16}),
    "known-policy": AttackRow(
        easy={"steps": 200, "tv": [1e-4, 1e-2]}, short={"steps": 30, "tv": [1e-4, 1e-2]}, defense=EITHER_SIDE
    ),
    "shifted": AttackRow(easy={"steps": 300, "limit": [0.25, 0.25]}, short={"steps": 30, "restarts": 2}),
    "shifted-re-ats": AttackRow(easy={"steps": 400, "limit": [0.1, 0.1]}, short={"steps": 30}),
    "affine": AttackRow(
        easy={"steps": 300, "limit": [0.25, 0.25], "contrast": 0.1, "brightness": 0.1, "tv": 1e-3},
        short={"steps": 30, "restarts": 2},
    ),
    "dlg": AttackRow(easy={"steps": 150, "restarts": 1}, short={"steps": 30}),
    "dlg-code": AttackRow(easy={"steps": 150, "rate": 1.0, "tv": 0.0}, short={"steps": 30}),
    "dlg-paper": AttackRow(easy={"steps": 150, "restarts": 4}, short={"steps": 30, "restarts": 2}),
    "dlg-joint": AttackRow(easy={"steps": 150, "restarts": 1}, short={"steps": 30, "restarts": 2}),
    "lbfgs-cosine": AttackRow(easy={"steps": 150, "restarts": 1}, short={"steps": 30}),
    "lbfgs-cosine-code": AttackRow(easy={"steps": 300, "restarts": 1, "rate": 0.1}, short={"steps": 30, "restarts": 2}),
    "adam-l1": AttackRow(easy={"steps": 200, "tv": [1e-3, 1e-1]}, short={"steps": 30, "tv": [1e-3, 1e-1]}),
    "gradinversion": AttackRow(easy={"steps": 200, "tv": [1e-4, 1e-2]}, short={"steps": 30, "tv": [1e-4, 1e-2]}),
    "gradinversion-full": AttackRow(easy={"steps": 200, "tv": 1e-3}, short={"steps": 30, "restarts": 2}),
    "gradinversion-full-paper": AttackRow(easy={"steps": 200, "restarts": 2}, short={"steps": 30, "restarts": 2}),
    "sgd-cosine": AttackRow(easy={"steps": 200, "tv": [1e-4, 1e-2]}, short={"steps": 30, "tv": [1e-4, 1e-2]}),
    "rog": AttackRow(easy={"steps": 200, "factor": 1}, short={"steps": 30, "factor": 3}),  # 8 pixels have none to spare
    "rog-code": AttackRow(easy={"steps": 200, "factor": 1}, short={"steps": 30}),
    "rog-paper": AttackRow(easy={"steps": 200, "factor": 1}, short={"steps": 30}),
    "rogs": AttackRow(easy=DRAWN | {"rate": 0.2, "reach": 100.0}, short=BRIEFLY_DRAWN),
    "rogs-paper": AttackRow(easy=DRAWN, short=BRIEFLY_DRAWN),
    "learned-inverter": AttackRow(
        easy={"inverter": tiny_inverters(), "search": True, "steps": 200, "pull": 0.0, "rate": 0.1},
        short={"inverter": tiny_inverters(), "search": True, "steps": 30, "pull": [0.0, 1.0]},
    ),
    "linear": AttackRow(model=perceptron),
    "april": AttackRow(model=patches),
    "april-search": AttackRow(model=patches, easy={"steps": 60}, short={"steps": 8}),
    "spear": AttackRow(model=perceptron),
    "cocktail-party": AttackRow(model=perceptron),
    "decode-known": AttackRow(easy={"steps": 50}, short={"steps": 8}, defense=Mixup(k=1)),
    "decode-carlini": AttackRow(
        easy={"steps": 80, "joint": False},
        short={"steps": 8, "joint": False, "similarity": "pixels"},
        defense=Mixup(k=1),
    ),
    "linear-model": AttackRow(model=logistic, single=True),
    "rtf": AttackRow(short={"neurons": 32, "sparse": True}),
    "cah": AttackRow(),
    "loda-inverse": AttackRow(
        easy={"steps": 200, "restarts": 1, "c": [0.1], "tv": [0.1], "lengths": [250]},
        short={"steps": 10, "restarts": 1, "c": [1.0], "tv": [0.1], "lengths": [5], "rehearsal": 1},
        defense=MILD_LODA,
    ),
    "loda-inverse-paper": AttackRow(
        easy={"steps": 200, "restarts": 1}, short={"steps": 10, "restarts": 1, "lengths": 5}
    ),
}


FEW, FEWER = {"steps": 200, "restarts": 1}, {"steps": 30, "restarts": 1, "neurons": 32}
TO_KNOW: dict[str, Defense] = {"views": EITHER_SIDE, "mixture": Mixup(k=1)}


def attack_row(name: str) -> AttackRow:
    """Its own, or few steps where it takes any, against a defense that it requires."""
    if name in LISTED:
        return LISTED[name]
    offered = options_of(ATTACKS[name])
    easy, short = ({key: value for key, value in few.items() if key in offered} for few in (FEW, FEWER))
    known = [TO_KNOW[need] for need in ATTACKS[name]().requires if need in TO_KNOW]
    return AttackRow(easy=easy, short=short, defense=known[0] if known else NO_DEFENSE)


ATTACK_ROWS = {name: attack_row(name) for name in ATTACKS}


def same_signs(got: Tensor, plain: Tensor) -> bool:
    """Every number keeps its sign, and the tensor its mean magnitude."""
    return torch.equal(got.sign(), plain.sign()) and torch.allclose(got.abs().mean(), plain.abs().mean())


@dataclass(frozen=True, kw_only=True)
class DefenseRow:
    """What a defense is tested with. One without a row here is tested with its defaults, a preset with the row of what
    it is a preset of.

    It is held to one of three: `idle` options leave the update as it is (or as `keeps` says), or the defense changes
    `pictures` and nothing else at any strength, or it changes the model.
    """

    options: dict[str, Any] = field(default_factory=dict)  # that change an update
    idle: dict[str, Any] | None = None  # that leave it as it is
    rounding: float = 0.0  # by which it is not quite as it was: sums over examples in another order
    keeps: Callable[[Tensor, Tensor], bool] | None = None  # what of each tensor an idle defense leaves as it was
    pictures: bool = False
    changes_model: bool = False


DEFENSE_ROWS = {
    "none": DefenseRow(idle={}),
    "gaussian": DefenseRow(options={"scale": 0.05}, idle={"scale": 0.0}),
    "laplacian": DefenseRow(options={"scale": 0.05}, idle={"scale": 0.0}),
    "prune": DefenseRow(options={"ratio": 0.5}, idle={"ratio": 0.0}),
    "topk": DefenseRow(options={"sparsity": 0.5}, idle={"sparsity": 0.0}),
    "percentile": DefenseRow(options={"percentile": 50.0}, idle={"percentile": 0.0, "gamma": 1e9}),
    "svt": DefenseRow(idle={"fraction": 1.0, "replace": False, "gamma": 1e3, "noise_var": 1e30}, rounding=1e-14),
    "local-dp": DefenseRow(idle={"clipping_norm": 1e9, "sensitivity": 0.0}),
    "sign": DefenseRow(idle={"scaled": True}, keeps=same_signs),
    "uniform": DefenseRow(idle={"bits": 16}, rounding=2e-5),
    "qsgd": DefenseRow(idle={"bits": 16}, rounding=4e-5),
    "ats": DefenseRow(options={"policy": "3-1-7+12"}, idle={"policy": "none"}, pictures=True),
    "random-policy": DefenseRow(options={"library": ("translateX9", "invert0")}, idle={"length": 0}, pictures=True),
    "oasis": DefenseRow(options={"transforms": "major+shear"}, idle={"transforms": "none"}, pictures=True),
    "loda": DefenseRow(options=TINY_LODA, pictures=True),
    "mixup": DefenseRow(options={"k": 3}, idle={"k": 1}, pictures=True),
    "instahide": DefenseRow(options={"k": 3}, idle={"k": 1, "signs": "none"}, pictures=True),
    "dpsgd": DefenseRow(options={"clip": 0.5}, idle={"clip": 1e9, "noise": 0.0}, rounding=1e-14),
    "fedcdp": DefenseRow(options={"clip": 0.5}, idle={"clip": 1e9, "noise": 0.0}, rounding=1e-14),
    "soteria": DefenseRow(options={"rate": 0.5}, idle={"rate": 0.0}),
    "precode": DefenseRow(options={"size": 8}, changes_model=True),
    "stack": DefenseRow(
        options={"of": [{"name": "prune", "ratio": 0.3}, {"name": "gaussian", "scale": 0.05}]}, idle={"of": []}
    ),
}
PICTURES = {"data", "batch"}  # the stages that change pictures and nothing else
STAGES = ("model", "data", "batch", "gradient", "update")


def defense_row(name: str) -> DefenseRow:
    """Its own, or that of its family with the options that a preset still offers, or one that is found out."""
    if name in DEFENSE_ROWS:
        return DEFENSE_ROWS[name]
    factory = inspect.unwrap(DEFENSES[name])
    family = next((one for one in DEFENSE_ROWS if DEFENSES[one] is factory), None)
    if family is None:
        acts = {stage for stage in STAGES if DEFENSES[name]().acts_at(stage)}
        return DefenseRow(pictures=acts <= PICTURES, changes_model="model" in acts)
    row, offered = DEFENSE_ROWS[family], options_of(DEFENSES[name])
    return replace(row, options={key: value for key, value in row.options.items() if key in offered}, idle=None)


def test_no_row_is_left_over() -> None:
    assert set(LISTED) <= set(ATTACKS)
    assert set(DEFENSE_ROWS) <= set(DEFENSES)
    assert all(row.idle is not None or row.pictures or row.changes_model for row in DEFENSE_ROWS.values())


each_attack = pytest.mark.parametrize("name", ATTACKS)
each_defense = pytest.mark.parametrize("name", DEFENSES)


def easy_scene(name: str) -> Scenario:
    """Three photographs at 8x8, one client each."""
    pictures = photos(size=8, limit=3).images.double().unsqueeze(1)
    scenario = ATTACK_ROWS[name].scene(3)
    return replace(scenario, private=Batch(pictures, scenario.private.labels))


def seen_by(name: str) -> Observation:
    return sent_by(name, easy_scene(name))


def sent_by(name: str, scenario: Scenario) -> Observation:
    """What comes back of the model that this attack sends."""
    return observe(scenario, ATTACK_ROWS[name].defense, short(name), Seed(0))[0]


def short(name: str) -> Attack:
    return ATTACKS[name](**ATTACK_ROWS[name].short)


def brief(name: str, steps: int) -> dict[str, Any]:
    """Its short options with fewer steps still, for what shows from the first one on."""
    options = ATTACK_ROWS[name].short
    return options | {"steps": steps} if "steps" in options else options


def attacked(name: str, seen: Observation, compute: Compute = DOUBLE) -> Reconstruction:
    return short(name).reconstruct(seen, Seed(0), compute)


def briefly_attacked(name: str, seen: Observation, compute: Compute = DOUBLE) -> Reconstruction:
    return ATTACKS[name](**brief(name, 10)).reconstruct(seen, Seed(0), compute)


@cache
def plainly_attacked(name: str) -> tuple[Observation, Reconstruction]:
    """What every other way to run the attack is compared with."""
    seen = seen_by(name)
    return seen, attacked(name, seen)


# attacks


@each_attack
def test_an_attack_beats_every_blank_guess_on_an_easy_scene(name: str) -> None:
    scenario, attack = easy_scene(name), ATTACKS[name](**ATTACK_ROWS[name].easy)
    seen, truth = observe(scenario, ATTACK_ROWS[name].defense, attack, Seed(0))
    got = attack.reconstruct(seen, Seed(0), DOUBLE)
    pictures = truth.private.images
    blank = pictures.mean((-2, -1), keepdim=True).expand_as(pictures)  # its own mean color: no blank guess is nearer
    assert (peak_signal_to_noise(got.images, pictures) > peak_signal_to_noise(blank, pictures) + 3).all()


@each_attack
def test_the_same_seed_gives_the_same_result_bit_for_bit(name: str) -> None:
    seen, once = plainly_attacked(name)
    again = attacked(name, seen)
    assert torch.equal(once.images, again.images)
    assert torch.equal(once.loss, again.loss)


@each_attack
def test_a_client_alone_is_the_client_among_others(name: str) -> None:
    """The last one, whose place is another when it is alone."""
    seen, together = plainly_attacked(name)
    alone = attacked(name, seen.take([2]))
    assert (alone.images[0] - together.images[2]).abs().max() < 1e-9
    assert (alone.loss[0] - together.loss[2]).abs() < 1e-9


@pytest.mark.more
@each_attack
@pytest.mark.parametrize("chunk", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_any_chunk_gives_the_same_result(name: str, chunk: int) -> None:
    seen, together = plainly_attacked(name)
    parts = attacked(name, seen, replace(DOUBLE, chunk=chunk))
    assert (parts.images - together.images).abs().max() < 1e-9


@each_attack
def test_any_order_gives_the_same_result(name: str) -> None:
    (seen, together), order = plainly_attacked(name), [2, 0, 1]
    shuffled = attacked(name, seen.take(order))
    assert (shuffled.images - together.images[order]).abs().max() < 1e-9


@pytest.mark.more
@each_attack
def test_any_back_end_goes_the_same_way(name: str) -> None:
    """Ten steps here; fifty, with more models, in test_backends."""
    seen = seen_by(name).take([0, 2])
    expected = briefly_attacked(name, seen, replace(DOUBLE, backend="loop"))
    backends: tuple[Any, ...] = ("vmap", "sweep")
    for backend in backends:
        got = briefly_attacked(name, seen, replace(DOUBLE, backend=backend))
        assert got.backend in (backend, "closed form")
        assert (got.images - expected.images).abs().max() < 1e-9, backend


@each_attack
@pytest.mark.parametrize(("dtype", "examples"), [(torch.float32, 2), (torch.float64, 1)])
def test_a_reconstruction_has_the_shape_dtype_and_range_of_pictures(name: str, dtype, examples: int) -> None:
    scenario = ATTACK_ROWS[name].scene(2, examples)
    seen = sent_by(name, scenario if dtype == torch.float64 else as_float32(scenario))
    got = briefly_attacked(name, seen, Compute(precision="float64" if dtype == torch.float64 else "float32"))
    assert got.images.shape == (2, examples, 3, 8, 8)
    assert got.labels.shape == (2, examples, CLASSES)
    assert got.found.shape == (2, examples)
    assert got.loss.shape == (2,)
    assert {x.dtype for x in (got.images, got.labels, got.loss)} == {dtype}
    devices = {x.device for x in (got.images, got.labels, got.found, got.loss)}
    assert devices == {u.device for u in seen.update.values()}
    assert got.images.min() >= 0
    assert got.images.max() <= 1


@each_attack
def test_a_broken_update_fails_alone(name: str) -> None:
    seen, clean = plainly_attacked(name)
    broken = replace(seen, update={key: u.clone() for key, u in seen.update.items()})
    for u in broken.update.values():
        u[1] = torch.nan
    got = attacked(name, broken)
    assert got.loss.isfinite().tolist() == [True, False, True]
    assert torch.equal(got.images[[0, 2]], clean.images[[0, 2]])


@each_attack
def test_an_attack_without_labels_infers_them(name: str) -> None:
    scenario = easy_scene(name)
    threat = replace(scenario.threat, knows_labels=False)
    hidden = sent_by(name, replace(scenario, threat=threat))
    assert hidden.labels is None
    assert torch.equal(attacked(name, hidden).labels, scenario.private.labels)


@each_attack
def test_an_attack_leaves_what_it_sees_as_it_was(name: str) -> None:
    seen = seen_by(name)
    before = {key: u.clone() for key, u in {**seen.update, **seen.model.state_dict()}.items()}
    briefly_attacked(name, seen)
    assert all(torch.equal(u, before[key]) for key, u in {**seen.update, **seen.model.state_dict()}.items())
    assert all(p.requires_grad for p in seen.model.parameters())


# defenses


def built(name: str) -> Defense:
    return DEFENSES[name](**defense_row(name).options)


def same(a: Update, b: Update) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", [name for name in DEFENSES if defense_row(name).idle is not None])
def test_an_idle_defense_is_none(name: str) -> None:
    row = defense_row(name)
    got = seen_in(four_pictures(), DEFENSES[name](**(row.idle or {}))).update
    plain = seen_in(four_pictures()).update
    assert got.keys() == plain.keys()
    for key, u in plain.items():
        if row.keeps is not None:
            assert all(map(row.keeps, got[key], u)), key
        else:
            assert (got[key] - u).abs().max() <= row.rounding * u.abs().max(), key


@pytest.mark.parametrize("name", [name for name in DEFENSES if defense_row(name).pictures])
def test_a_defense_of_pictures_sends_the_update_of_the_pictures_that_it_feeds(name: str) -> None:
    """Bit for bit, at any strength."""
    check_pictures_only(built(name))


def check_pictures_only(defense: Defense) -> None:
    scenario = four_pictures()
    seen, truth = observe(scenario, defense, Onlooker(), Seed(0))
    assert not torch.equal(truth.fed.images, scenario.private.images)
    assert same(seen.update, seen_in(replace(scenario, private=truth.fed)).update)


@pytest.mark.parametrize("factor", [-50.0, 0.0, 1.001])
def test_that_can_fail(factor: float) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mutant(Oasis):
        def update(self, update: Update, rng: torch.Generator) -> Update:
            return {name: factor * u for name, u in update.items()}

    check_pictures_only(Oasis())
    with pytest.raises(AssertionError):
        check_pictures_only(Mutant())


@pytest.mark.parametrize("name", [name for name in DEFENSES if defense_row(name).changes_model])
def test_a_defense_that_changes_the_model_leaves_the_layers_in_front_as_they_are(name: str) -> None:
    got, plain = seen_in(four_pictures(), built(name)).update, seen_in(four_pictures()).update
    assert set(got) > set(plain) - {"fc.weight", "fc.bias"}


@each_defense
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_defended_update_has_the_names_shapes_and_dtypes_of_the_plain_one(name: str, dtype: torch.dtype) -> None:
    scenario = four_pictures() if dtype == torch.float64 else as_float32(four_pictures())
    agreed = replace(scenario, model=built(name).model(scenario.model))
    plain, defended = seen_in(agreed).update, seen_in(scenario, built(name)).update
    assert [(n, u.shape, u.dtype) for n, u in defended.items()] == [(n, u.shape, u.dtype) for n, u in plain.items()]
    assert all(u.isfinite().all() for u in defended.values())
    if name in DEFENSE_ROWS or defense_row(name).options:
        assert same(plain, defended) == (name == "none")


@each_defense
def test_a_defense_is_the_same_for_the_same_seed_and_clients_alone(name: str) -> None:
    scenario, defense = four_pictures(), built(name)
    seen = seen_in(scenario, defense)
    assert same(seen.update, seen_in(scenario, defense).update)
    private = Batch(scenario.private.images[[1]], scenario.private.labels[[1]])
    alone = seen_in(replace(scenario, private=private, names=scenario.names[1:2]), defense)
    assert same(alone.update, seen.take([1]).update)


@each_defense
def test_a_defense_does_not_write_into_the_update(name: str) -> None:
    update = {"weight": drawn(4, 3), "bias": drawn(4)}
    before = {key: u.clone() for key, u in update.items()}
    built(name).update(update, Seed(0).rng())
    assert same(update, before)


@each_defense
def test_repr_rebuilds_a_defense(name: str) -> None:
    names: dict[str, Any] = {}
    for module in pkgutil.walk_packages(gradveil.defenses.__path__, "gradveil.defenses."):
        names |= vars(importlib.import_module(module.name))
    for options in (defense_row(name).options, defense_row(name).idle or {}):
        defense = DEFENSES[name](**options)
        assert eval(repr(defense), names) == defense


def adaptive(name: str) -> Observation:
    return seen_in(replace(four_pictures(2), threat=ThreatModel(knows_defense=True)), built(name))


@each_defense
def test_a_surrogate_draws_nothing_and_is_deterministic(name: str) -> None:
    seen = adaptive(name)
    one = {key: u[0] for key, u in seen.update.items()}
    surrogate, rng = built(name).surrogate(one), Seed(0).rng()
    before = rng.get_state()
    batch, params = Batch(drawn(4, 3, 8, 8), drawn(4, CLASSES)), parameters_of(seen.model)
    results = []
    for _ in range(2):
        fed = surrogate.batch(surrogate.data(batch, rng), rng)
        gradient = surrogate.gradient(lambda params, batch: one, seen.model, rng)
        results.append({"images": fed.images, **surrogate.update(gradient(params, fed), rng)})
    assert same(*results)
    assert torch.equal(rng.get_state(), before)


@each_defense
def test_a_surrogate_is_differentiable_under_vmap(name: str) -> None:
    seen, fed = adaptive(name), drawn(2, 4, 3, 8, 8, seed=4)
    value, gradient = choose(seen, Cosine(), "loop").matcher(seen, Cosine())(fed)
    assert gradient.isfinite().all()
    assert (gradient.flatten(1).norm(dim=1) > 0).all()
    for backend in ("vmap", "auto"):
        got: tuple[Tensor, Tensor] = choose(seen, Cosine(), backend).matcher(seen, Cosine())(fed)
        assert torch.allclose(got[0], value, rtol=1e-9)
        assert (got[1] - gradient).norm() < 1e-9 * gradient.norm()


# models


# what they are made of is in inversion/nets.py
LARGE = ("resnet18", "resnet34", "vit-small", "vgg16", "densenet121", "vgg7", "resnet18-plain")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LARGE else ()) for n in MODELS])
def test_a_model_runs_on_the_sweep_and_equals_the_loop(name: str) -> None:
    shape = (3, 32, 32) if name == "vgg16" else (3, 9, 9)
    model = settled(MODELS[name](classes=CLASSES, shape=shape, mean=(0.5,) * 3, std=(0.25,) * 3))
    seen, fed = seen_in(scene(model, 1, 2, shape=shape)), drawn(1, 2, *shape, seed=4)
    chosen = choose(seen, Cosine(), "auto")
    assert (chosen.name, chosen.notes) == ("sweep", ())
    value, gradient = chosen.matcher(seen, Cosine())(fed)
    expected, slope = choose(seen, Cosine(), "loop").matcher(seen, Cosine())(fed)
    assert torch.allclose(value, expected, rtol=1e-9)
    assert (gradient - slope).norm() < 1e-9 * slope.norm()


# all of them


@each_attack
def test_an_attack_goes_through_toml_and_comes_back(name: str) -> None:
    row = ATTACK_ROWS[name]
    for options in (row.easy, row.short, {}):
        tables = {"attack": {"mine": {"name": name, **options}}}
        config = from_tables(tables)
        again = from_tables(tomllib.loads(dumps(config)))
        assert again == config
        for label, choice in config.attack.items():  # an ensemble is its stages
            assert ATTACKS[choice.name](**again.attack[label].options) == ATTACKS[choice.name](**choice.options)
            kept = {key: value for key, value in again.attack[label].options.items() if key in options}
            assert kept == {key: value for key, value in _tuples(options).items() if key in kept}


@each_defense
def test_a_defense_goes_through_toml_and_comes_back(name: str) -> None:
    row = defense_row(name)
    for options in (row.options, row.idle or {}, {}):
        config = from_tables({"defense": {"mine": {"name": name, **options}}})
        again = from_tables(tomllib.loads(dumps(config)))
        assert again == config
        assert DEFENSES[name](**again.defense["mine"].options) == DEFENSES[name](**options)


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


@pytest.mark.parametrize(("table", "name"), [*(("attack", n) for n in ATTACKS), *(("defense", n) for n in DEFENSES)])
def test_a_method_is_described_and_has_a_paper(table: str, name: str) -> None:
    factory = {"attack": ATTACKS, "defense": DEFENSES}[table][name]
    module = inspect.getmodule(factory)
    assert (inspect.getdoc(module) or "").strip()
    assert (inspect.getdoc(factory) or "").strip()
    paper = module.PAPER  # type: ignore[union-attr]
    if paper is None:  # a method of our own says so
        return
    assert isinstance(paper, Paper)
    assert all((paper.title, paper.authors, paper.where))
    assert 1990 < paper.year < 2100
    assert str(paper.year) in module.__doc__  # type: ignore[union-attr,operator]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_described(name: str) -> None:
    assert (inspect.getdoc(MODELS[name]) or "").strip()


def test_choices_in_code_are_choices_in_toml() -> None:
    attacks = set(ATTACKS) - {"autoattack"}  # which becomes its stages
    config = AuditConfig(attack={n: Choice(name=n) for n in attacks}, defense={n: Choice(name=n) for n in DEFENSES})
    text = dumps(config)
    assert set(from_tables(tomllib.loads(text)).attack) == attacks
    assert set(from_tables(tomllib.loads(text)).defense) == set(DEFENSES)
