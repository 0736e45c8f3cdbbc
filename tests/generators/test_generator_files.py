"""Generators by file: what is in it decides, lies are refused, and code is run for the command line alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from generator_files import ARCHITECTURE, write_generator
from safetensors.torch import load_file, save_file

from gradveil.attacks.rogs import rogs
from gradveil.config.load import read_tables
from gradveil.core.errors import ConfigError
from gradveil.generators.generator import is_user_generator, kind_of, load_generator

OWN = """
import torch

class Mine(torch.nn.Module):
    latent, size = (4,), (1, 2, 2)

    def __init__(self, classes):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((4,), 1.0 / classes))

    def forward(self, z):
        return torch.sigmoid(z * self.scale).view(-1, 1, 2, 2)

def without_sizes():
    return torch.nn.Identity()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(write_generator(tmp_path / "g.safetensors"))


def changed(file: Path, **metadata: str) -> Path:
    save_file(load_file(file), file, metadata={f"gradveil.{key}": value for key, value in metadata.items()})
    return file


def test_a_generator_comes_back_frozen(file: Path) -> None:
    generator = load_generator(file)
    assert kind_of(file) == "conditional-gan"
    assert (generator.latent, generator.size) == ((272,), (3, 8, 8))
    assert not any(p.requires_grad for p in generator.parameters())  # type: ignore[attr-defined]
    assert not generator.training  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["none.safetensors", "g.pt"])
def test_what_is_no_file_of_ours_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "g.pt").write_bytes(b"x")
    with pytest.raises(ConfigError, match=name):
        load_generator(tmp_path / name)


def test_an_unknown_kind_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="'diffusion', not a generator"):
        load_generator(changed(file, kind="diffusion"))
    with pytest.raises(ConfigError, match="unknown kind"):
        load_generator(changed(file))


@pytest.mark.parametrize(
    "architecture",
    [
        "[]",
        "not JSON",
        json.dumps({**ARCHITECTURE, "width": 10**9}),
        json.dumps({**ARCHITECTURE, "width": -1}),
        json.dumps({**ARCHITECTURE, "width": "32"}),
        json.dumps({**ARCHITECTURE, "extra": 1}),
        json.dumps({"width": 32}),
        json.dumps({**ARCHITECTURE, "width": 16}),
    ],
)
def test_an_architecture_that_does_not_fit_is_refused(file: Path, architecture: str) -> None:
    with pytest.raises(ConfigError, match=r"g\.safetensors"):
        load_generator(changed(file, kind="conditional-gan", architecture=architecture))


def test_numbers_that_are_none_are_refused(file: Path) -> None:
    tensors = load_file(file)
    tensors["paint.bias"][0] = torch.nan
    content = {"gradveil.kind": "conditional-gan", "gradveil.architecture": json.dumps(ARCHITECTURE)}
    save_file(tensors, file, metadata=content)
    with pytest.raises(ConfigError, match=r"paint\.bias"):
        load_generator(file)


def test_a_generator_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    generator = load_generator(f"{tmp_path}/own.py:Mine", classes=2)
    assert torch.allclose(generator(torch.full((1, 4), 2.0)), torch.sigmoid(torch.ones(1, 1, 2, 2)))
    with pytest.raises(ConfigError, match="no tuple `latent`"):
        load_generator(f"{tmp_path}/own.py:without_sizes")


def test_code_is_seen_by_its_name() -> None:
    assert is_user_generator("a/b.py:make")
    assert is_user_generator("b.py")
    assert not is_user_generator("b.safetensors")


def test_a_config_file_never_runs_code(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"from pathlib import Path\nPath({str(ran)!r}).touch()\n{OWN}")
    for options in (f'generator = "{tmp_path}/own.py:Mine"', f'inner = "rog:weights={tmp_path}/own.py:Mine"'):
        (tmp_path / "audit.toml").write_text(f"[scenario]\nattacker = 'curious'\n[attack.rogs]\n{options}\n")
        with pytest.raises(ConfigError, match="never taken from a config"):
            read_tables(tmp_path / "audit.toml")
    assert rogs(generator=f"{tmp_path}/own.py:Mine").generator.endswith("own.py:Mine")  # named, not run
    assert not ran.exists()
