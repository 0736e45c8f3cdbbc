"""Models from the user's own file: what runs, and the one line that each mistake gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.models import load_model

FILE = """
from __future__ import annotations
from dataclasses import dataclass
import sys
import torch
from torch import nn

@dataclass
class Options:
    width: int = 3

def with_both(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

def with_classes(*, classes, width=4):
    return nn.Linear(width, classes)

def with_any(**options):
    return nn.Linear(len(options), options["classes"])

def with_none():
    return nn.Linear(2, 2)

class Net(nn.Linear):
    def __init__(self, classes: int) -> None:
        super().__init__(5, classes)

def text():
    return "a model"

def needs(more):
    return nn.Linear(2, 2)

def breaks():
    raise RuntimeError("no\\nluck")

def leaves():
    sys.exit("usage: train.py")

ready = nn.Linear(2, 2)
number = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def load(path: Path, factory: str) -> torch.nn.Module:
    return load_model(f"{path}:{factory}", classes=7, shape=(3, 4, 5))


@pytest.mark.parametrize(
    ("factory", "weight"),
    [("with_both", (7, 60)), ("with_classes", (7, 4)), ("with_any", (7, 2)), ("with_none", (2, 2)), ("Net", (7, 5))],
)
def test_factory_gets_what_its_signature_asks_for(file: Path, factory: str, weight: tuple[int, int]) -> None:
    shapes = [tuple(p.shape) for p in load(file, factory).parameters()]
    assert shapes[0] == weight


def test_weights_repeat_and_the_callers_generator_is_untouched(file: Path) -> None:
    before = torch.get_rng_state()
    first, again = load(file, "with_both"), load(file, "with_both")
    assert torch.equal(first.get_parameter("1.weight"), again.get_parameter("1.weight"))
    assert torch.equal(before, torch.get_rng_state())


def test_neighbors_can_be_imported_and_the_path_is_restored(tmp_path: Path) -> None:
    (tmp_path / "gradveil_test_neighbor.py").write_text("WIDTH = 9\n")
    late = "def net():\n    from gradveil_test_neighbor import WIDTH\n    return torch.nn.Linear(WIDTH, 1)\n"
    (tmp_path / "net.py").write_text(f"import torch\n{late}")
    before = list(sys.path)
    assert next(load(tmp_path / "net.py", "net").parameters()).shape == (1, 9)
    assert sys.path == before


def test_a_file_called_torch_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(1, 1)\n")
    load(tmp_path / "torch.py", "net")
    assert sys.modules["torch"] is torch


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("with_bot", "no factory 'with_bot', did you mean 'with_both'"),
        ("zzz", "no factory 'zzz', define one that returns a torch.nn.Module"),
        ("text", "text\\(\\) returned str, it must return a torch.nn.Module"),
        ("needs", "needs\\(\\) raised TypeError: .*more"),
        ("breaks", "breaks\\(\\) raised RuntimeError: no luck"),
        ("leaves", "leaves\\(\\) raised SystemExit: usage"),
        ("ready", "ready is a Linear, name a function"),
        ("number", "number is a int, name a function"),
    ],
)
def test_wrong_factories(file: Path, factory: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(file, factory)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["model.py", "model.py:", ":net", "folder:net", "model.txt:net", "a.py:not a name"])
def test_not_a_specification(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"write path/to/file\.py:factory"):
        load_model(spec, classes=2, shape=(1, 2, 2))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.py: no such file"):
        load(tmp_path / "nowhere.py", "net")


@pytest.mark.parametrize(
    ("text", "kind"), [("import no_such_package", "ModuleNotFoundError"), ("def (", "SyntaxError")]
)
def test_a_file_that_does_not_run_leaves_nothing_behind(tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=rf"bad\.py: running the file raised {kind}"):
        load(path, "net")
    assert set(sys.modules) == before
