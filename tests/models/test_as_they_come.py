"""Models and weights as people have them: other names of arguments, prefixes, nested checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.models import load_model, load_weights
from gradveil.models.weights import allow_pickles

FACTORIES = {
    "num_classes": ("def make(num_classes): return net(3, num_classes)", "num_classes=7"),
    "another default": ("def make(num_classes=1000): return net(3, num_classes)", "num_classes=7"),
    "labels and channels": (
        "def make(in_chans=1, num_labels=10): return net(in_chans, num_labels)",
        "in_chans=3, num_l",
    ),
    "planes of pictures": (
        "def make(n_channels=1, n_classes=2): return net(n_channels, n_classes)",
        "n_channels=3, n_c",
    ),
    "an output without default": ("def make(out_features): return net(3, out_features)", "out_features=7"),
    "a class": (
        "class make(nn.Sequential):\n  def __init__(s, nclasses): super().__init__(*net(3, nclasses))",
        "nclas",
    ),
    "a size": ("def make(img_size=224, nb_classes=9): assert img_size == 8; return net(3, nb_classes)", "img_size=8"),
    "keywords": ("def make(num_classes=4, **more): assert not more; return net(3, num_classes)", "num_classes=7"),
}
HEAD = """
from torch import nn
def net(channels, classes):
    return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(72, classes))
"""


@pytest.mark.parametrize(("factory", "said"), FACTORIES.values(), ids=FACTORIES)
def test_what_a_factory_asks_for_is_filled_and_said(
    factory: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(HEAD + factory)
    for _ in range(2):
        model = load_model(f"{tmp_path}/net.py:make", classes=7, shape=(3, 8, 8))
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 7)
    printed = capsys.readouterr().err
    assert printed.startswith(f"{tmp_path}/net.py: make(")
    assert said in printed
    assert printed.endswith("): filled from the data\n")
    assert printed.count("\n") == 1, "two of the same model are said once"


@pytest.mark.parametrize(
    "factory",
    [
        "def make(num_classes=7, in_channels=3): return net(in_channels, num_classes)",
        "def make(classes, shape, channels=64): assert channels == 64; return net(3, classes)",
        "def make(classes, out_features=5): assert out_features == 5; return net(3, classes)",
    ],
)
def test_what_the_data_agrees_with_or_may_mean_a_width_is_left(
    factory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(HEAD + factory)
    load_model(f"{tmp_path}/net.py:make", classes=7, shape=(3, 8, 8))
    assert not capsys.readouterr().err


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def other() -> nn.Module:
    model = net()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "backbone.", "net.", "_orig_mod.module."])
def test_a_prefix_of_all_names_is_taken_off_and_said(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained, model = other(), net()
    save_file({prefix + name: tensor for name, tensor in trained.state_dict().items()}, tmp_path / "w.safetensors")
    load_weights(model, tmp_path / "w.safetensors")
    assert same(model, trained)
    assert f"begins with {prefix!r}" in capsys.readouterr().err


def test_the_model_may_be_the_one_that_is_wrapped(tmp_path: Path) -> None:
    trained, model = other(), nn.DataParallel(net())
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    load_weights(model, tmp_path / "w.safetensors")
    assert same(model.module, trained)


def test_a_model_whose_own_names_begin_so_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained, model = (nn.Sequential(), nn.Sequential())
    for one, inner in ((trained, other()), (model, net())):
        one.add_module("backbone", inner)
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    load_weights(model, tmp_path / "w.safetensors")
    assert same(model, trained)
    assert not capsys.readouterr().err


def test_a_prefix_of_some_names_is_no_prefix(tmp_path: Path) -> None:
    state = {f"module.{name}": tensor for name, tensor in other().state_dict().items()}
    save_file({**state, "head": torch.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(ConfigError, match="not the weights of this model"):
        load_weights(net(), tmp_path / "w.safetensors")


CHECKPOINTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "plain": (lambda state: state, ""),
    "state_dict": (lambda state: {"epoch": 3, "state_dict": state}, "state_dict"),
    "model_state_dict": (lambda state: {"model_state_dict": state, "loss": 0.5}, "model_state_dict"),
    "net": (lambda state: {"net": state, "acc": 91.0}, "net"),
    "ema": (lambda state: {"ema": state, "updates": 4}, "ema"),
    "model before ema": (lambda state: {"ema": {}, "model": state}, "model"),
    "deep": (lambda state: {"model": {"state_dict": state}, "optimizer": {"state": {}}}, "model.state_dict"),
    "lightning": (lambda state: {"state_dict": {f"model.{n}": x for n, x in state.items()}}, "state_dict"),
    "average": (
        lambda state: {"ema": {"n_averaged": torch.tensor(4), **{f"module.{n}": x for n, x in state.items()}}}, "ema",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wrap", "place"), CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_checkpoint_is_read_wherever_it_keeps_the_weights(
    wrap: Callable[[dict[str, torch.Tensor]], Any], place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained, model = other(), net()
    torch.save(wrap(trained.state_dict()), tmp_path / "w.pt")
    with allow_pickles():
        load_weights(model, tmp_path / "w.pt")
    assert same(model, trained)
    printed = capsys.readouterr().err
    assert (f", found under {place}\n" in printed) == bool(place)
