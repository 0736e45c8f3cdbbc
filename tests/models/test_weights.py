"""Weights from safetensors: a round trip, and refusals that leave the model as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.models import MODELS, load_weights


def model(seed: int = 0) -> nn.Module:
    return MODELS["convnet8"](classes=3, shape=(1, 9, 9), seed=seed, mean=[0.5], std=[0.2])


@pytest.fixture
def state() -> dict[str, Tensor]:
    return dict(model(seed=1).state_dict())


def saved(state: dict[str, Tensor], folder: Path) -> Path:
    path = folder / "weights.safetensors"
    save_file(state, path)
    return path


def test_round_trip(state: dict[str, Tensor], tmp_path: Path) -> None:
    target = model(seed=2)
    load_weights(target, saved(state, tmp_path))
    assert all(torch.equal(state[name], tensor) for name, tensor in target.state_dict().items())


def test_missing_unexpected_and_misshaped_are_listed_five_at_most(state: dict[str, Tensor], tmp_path: Path) -> None:
    for name in [name for name in state if name.startswith("norm1")] + ["fc.bias", "conv1.bias"]:
        del state[name]
    state |= {"head.weight": torch.zeros(2), "fc.weight": torch.zeros(4, 32)}
    with pytest.raises(ConfigError) as caught:
        load_weights(model(), saved(state, tmp_path))
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "weights.safetensors"))
    assert (
        "7 missing: conv1.bias, norm1.weight, norm1.bias, norm1.running_mean, norm1.running_var and 2 more" in message
    )
    assert "1 unexpected: head.weight" in message
    assert "1 of another shape: fc.weight (4, 32) instead of (3, 32)" in message


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".pkl", ".bin", ".PT"])
def test_pickles_are_refused_unread(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(
        ConfigError, match=r"pickles are not read.*safetensors\.torch\.save_file\(model\.state_dict\(\)"
    ):
        load_weights(model(), path)


def test_non_finite_numbers_name_tensor_and_count(state: dict[str, Tensor], tmp_path: Path) -> None:
    state["conv2.weight"].view(-1)[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    target = model()
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(ConfigError, match=r"conv2\.weight: 3 non-finite of \d+"):
        load_weights(target, saved(state, tmp_path))
    assert all(torch.equal(before[name], tensor) for name, tensor in target.state_dict().items())


def test_whole_numbers_in_place_of_floats(state: dict[str, Tensor], tmp_path: Path) -> None:
    state["fc.bias"] = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ConfigError, match=r"fc\.bias: is torch\.int64, the model has torch\.float32"):
        load_weights(model(), saved(state, tmp_path))


@pytest.mark.parametrize(
    ("name", "message"), [("gone.safetensors", "no such file"), ("weights.npz", "must be a .safe")]
)
def test_wrong_paths(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_weights(model(), tmp_path / name)


@pytest.mark.parametrize("keep", [0, 7, 60, 1500, -1])
def test_truncated_files(state: dict[str, Tensor], tmp_path: Path, keep: int) -> None:
    path = saved(state, tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ConfigError, match="not a readable safetensors file"):
        load_weights(model(), path)
