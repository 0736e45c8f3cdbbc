"""Weights that were trained with a defense which changes the model: audited as trained, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from gradveil.config.checkpoint import describe_changed_model, load_checkpoint
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.defenses.precode import Precode
from gradveil.defenses.prune import Prune
from gradveil.defenses.stack import Stack
from gradveil.models import MODELS

NONE = Defense()


def lenet(seed: int = 0) -> torch.nn.Module:
    return MODELS["lenet"](classes=3, shape=(3, 16, 16), seed=seed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of another seed than what an audit makes by itself, bottleneck included."""
    save_file(Precode(size=4, seed=7).model(lenet(seed=1)).state_dict(), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.mark.parametrize("defense", [Precode(size=4), Stack((Precode(size=4), Prune(ratio=0.5)))])
def test_the_bottleneck_is_that_of_the_training(file: Path, defense: Defense) -> None:
    model = load_checkpoint(lenet(), file, {"none": NONE, "mine": defense})
    own = Precode(size=4, seed=7).model(lenet(seed=1)).state_dict()
    for one in (model, defense.model(model)):
        assert one.state_dict().keys() == own.keys()
        assert all(torch.equal(x, own[name]) for name, x in one.state_dict().items())
    assert "what none is audited on too" in describe_changed_model(model, {"none": NONE, "mine": defense})
    assert not describe_changed_model(model, {"mine": defense})


def test_plain_weights_get_a_bottleneck_as_before(tmp_path: Path) -> None:
    save_file(lenet(seed=1).state_dict(), tmp_path / "w.safetensors")
    defenses = {"none": NONE, "precode": Precode(size=4)}
    model = load_checkpoint(lenet(), tmp_path / "w.safetensors", defenses)
    assert model.state_dict().keys() == lenet().state_dict().keys()
    assert not describe_changed_model(model, defenses)


@pytest.mark.parametrize(
    ("defenses", "said"),
    [
        ({"none": NONE}, "trained with precode, use `defense = precode:size="),
        ({"precode": Precode()}, r"encoder.weight \(8, \d+\) instead of \(512, \d+\).*defense.precode: .* its size"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(file: Path, defenses: dict[str, Defense], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        load_checkpoint(lenet(), file, defenses)
    assert "\n" not in str(error.value)


def test_weights_of_another_model_are_refused_as_before(tmp_path: Path) -> None:
    save_file({"conv.weight": torch.ones(1)}, tmp_path / "w.safetensors")
    with pytest.raises(ConfigError, match=r"unexpected: conv\.weight$"):
        load_checkpoint(lenet(), tmp_path / "w.safetensors", {"precode": Precode()})


def test_a_bottleneck_of_another_size_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"^precode: size = 256, the bottleneck of this model has 4, take size = 4"):
        Precode().check(Precode(size=4).model(lenet()))
