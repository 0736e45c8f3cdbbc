"""The attacks of ATS as presets: their constants, layers left out and updates in part.

What every row promises besides is in tests/test_contracts.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from scenes import perceptron, scene, seen_in, smooth
from test_contracts import ATTACK_ROWS, DOUBLE, brief

from gradveil.attacks import ATTACKS
from gradveil.config import from_tables
from gradveil.core.check import options_of
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.distance import L1, L2, Cosine
from gradveil.engine.inversion import Inversion
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.lbfgs_plain import PlainLbfgs
from gradveil.engine.optimizer import Adam, Sgd, Steps
from gradveil.engine.spaces.space import Pixels

SIX = ("dlg", "invertgrad", "lbfgs-cosine", "adam-l1", "gradinversion", "sgd-cosine")  # of ATS; each may have variants
PRESETS = [name for name in ATTACKS if any(name in (one, f"{one}-ats", f"{one}-code", f"{one}-paper") for one in SIX)]
LAYERED = [name for name in ATTACKS if "without" in options_of(ATTACKS[name])]
each_attack = pytest.mark.parametrize("name", [name for name in ATTACKS if not ATTACK_ROWS[name].single])
each_preset = pytest.mark.parametrize("name", PRESETS)
each_search = pytest.mark.parametrize("name", [name for name in LAYERED if name != "linear"])
each_layered = pytest.mark.parametrize("name", LAYERED)

ADAM = Adam(rate=0.1, signed=True, schedule=Steps((3 / 8, 5 / 8, 7 / 8), 0.1))
SGD = Sgd(rate=0.01, momentum=0.9, nesterov=True, signed=True, schedule=Steps((3 / 8, 5 / 8, 7 / 8), 0.1))


class Constants(NamedTuple):
    """What the code of ATS sets, or its text: values of the objective, starts, TV, and the parts."""

    steps: int
    restarts: int
    tv: float
    distance: Any
    optimizer: Any
    boxed: bool = True


PUBLISHED = {
    "invertgrad-ats": Constants(4800, 1, 1e-4, Cosine(), ADAM),
    "adam-l1-ats": Constants(4800, 1, 1e-4, L1(), ADAM),
    "gradinversion-ats": Constants(4800, 1, 1e-4, L2(), ADAM),
    "sgd-cosine-ats": Constants(4800, 1, 1e-4, Cosine(), SGD),
    "lbfgs-cosine-code": Constants(300 * 20, 16, 1e-4, Cosine(), PlainLbfgs(rate=1e-4, signed=True)),
    "dlg-code": Constants(50 * 20, 2, 1e-3, L2(), PlainLbfgs(rate=1e-4), boxed=False),
    "dlg-paper": Constants(300 * 20, 16, 0.0, L2(), PlainLbfgs(rate=1.0), boxed=False),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_preset_has_the_published_constants(name: str) -> None:
    attack, said = ATTACKS[name](), PUBLISHED[name]
    assert isinstance(attack, Inversion)
    assert (attack.steps, attack.restarts, attack.distance) == (said.steps, said.restarts, said.distance)
    assert attack.optimizer == said.optimizer
    assert attack.space == Pixels(start="normal", boxed=said.boxed)
    weights = [getattr(prior, "weight", None) for prior in attack.priors]
    assert weights in ([said.tv], [(said.tv,)]) if said.tv else weights == []


def test_torchs_defaults_are_those_of_the_plain_search() -> None:
    theirs, ours = torch.optim.LBFGS([torch.zeros(1)]).defaults, PlainLbfgs()
    assert (theirs["max_iter"], theirs["history_size"]) == (ours.updates, ours.memory)
    assert (theirs["tolerance_grad"], theirs["tolerance_change"]) == (ours.gradient, ours.change)


def test_the_six_attacks_of_ats_are_optimizer_by_distance() -> None:
    found = {name: ATTACKS[name]() for name in SIX}
    kinds = {name: (type(a.optimizer), type(a.distance)) for name, a in found.items() if isinstance(a, Inversion)}
    expected = {
        "dlg": (Lbfgs, L2),
        "invertgrad": (Adam, Cosine),
        "lbfgs-cosine": (Lbfgs, Cosine),
        "adam-l1": (Adam, L1),
        "gradinversion": (Adam, L2),
        "sgd-cosine": (Sgd, Cosine),
    }
    assert kinds == expected


@each_preset
def test_every_search_can_start_from_black(name: str) -> None:
    attack = ATTACKS[name](start="black")
    assert isinstance(attack, Inversion)
    start = attack.space.bind(seen_in(scene(smooth()))).init(Seed(0), "client-0", 0)
    shown = attack.space.bind(seen_in(scene(smooth()))).reveal({"pixels": start["pixels"][None]})
    assert shown.abs().max() < 1e-6


# layers


def reconstructed(name: str, seen: Observation, **options: Any):
    return ATTACKS[name](**{**brief(name, 10), **options}).reconstruct(seen, Seed(0), DOUBLE)


def seen_by(name: str, clients: int) -> Observation:
    return seen_in(ATTACK_ROWS[name].scene(clients), ATTACK_ROWS[name].defense)


def in_part(seen: Observation, keep: Any) -> Observation:
    return replace(seen, update={key: u for key, u in seen.update.items() if keep(key)})


@pytest.mark.more
@each_search
def test_a_layer_left_out_is_a_layer_never_sent(name: str) -> None:
    """The labels are given, so nothing else reads the last layer."""
    seen = seen_by(name, 2)
    never_sent = reconstructed(name, in_part(seen, lambda key: not key.startswith("6.")))
    everything = reconstructed(name, seen)
    ways: tuple[dict[str, Any], ...] = ({"only": ("1.*", "3.*")}, {"without": ("6.*",)})
    for options in ways:
        left_out = reconstructed(name, seen, **options)
        assert left_out.loss.isfinite().all()
        assert (left_out.images - never_sent.images).abs().max() < 1e-9
        assert (left_out.images - everything.images).abs().max() > 1e-6


@each_search
def test_what_is_left_out_is_not_looked_at(name: str) -> None:
    seen = seen_by(name, 2)
    forged = replace(seen, update={key: 7 - u if key.startswith("1.") else u for key, u in seen.update.items()})
    got, expected = (reconstructed(name, one, without=("1.*",)) for one in (forged, seen))
    assert (got.images - expected.images).abs().max() < 1e-9


@each_layered
@pytest.mark.parametrize("backend", ["auto", "loop", "vmap"])
def test_patterns_that_leave_nothing_are_told(name: str, backend: Any) -> None:
    seen = seen_by(name, 1)
    for options in ({"only": ("nowhere.*",)}, {"without": ("*",)}, {"only": ("1.*",), "without": ("1.*",)}):
        attack = ATTACKS[name](**{**ATTACK_ROWS[name].short, **options})
        with pytest.raises(NotApplicableError) as error:
            attack.reconstruct(seen, Seed(0), replace(DOUBLE, backend=backend))
        text = str(error.value)
        assert "\n" not in text
        assert all(pattern in text for patterns in options.values() for pattern in patterns)
        assert next(iter(seen.update)) in text


def test_linear_refuses_where_its_layer_is_left_out() -> None:
    seen = seen_in(scene(perceptron()))
    for options in ({"without": ("2.*",)}, {"without": ("2.bias",)}, {"only": ("4.*",)}):
        with pytest.raises(NotApplicableError, match=r"linear: .*layer '2'.*only and without"):
            reconstructed("linear", seen, **options)
    got = reconstructed("linear", seen, only=("2.*",))
    assert torch.equal(got.images, reconstructed("linear", seen).images)


@each_layered
def test_patterns_come_from_the_command_line_and_from_toml(name: str) -> None:
    config = from_tables({"attack": {"mine": {"name": name, "only": ["conv*"], "without": []}}})
    assert config.attack["mine"].options["only"] == ("conv*",)
    assert config.attack["mine"].options["without"] == ()


@each_attack
def test_an_update_in_part_is_attacked_by_what_there_is(name: str) -> None:
    """Frozen layers, or a client that sends some of them: the first layers alone still tell. An attack that reads
    pictures off another layer refuses."""
    seen = seen_by(name, 2)
    first = {next(iter(seen.update)).partition(".")[0]}
    part = in_part(seen, lambda key: key.partition(".")[0] in first)
    assert 0 < len(part.update) < len(seen.update)
    try:
        got = reconstructed(name, part)
    except NotApplicableError:
        return
    assert got.loss.isfinite().all()
    assert got.images.isfinite().all()
    assert got.images.shape == (2, 1, 3, 8, 8)
