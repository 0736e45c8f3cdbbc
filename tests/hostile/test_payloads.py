"""No file makes us run code: whatever the payload and wherever it is given, the marker never appears."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from gradveil.config import load
from gradveil.core.errors import ConfigError
from gradveil.models import MODELS, unpickle
from gradveil.models.weights import allow_pickles, load_weights
from hostile.forged import npz, whole
from hostile.payloads import LIVE, payloads

KINDS = tuple(payloads(Path("marker")))
SUFFIXES = (".pt", ".BIN", ".safetensors", ".npz", ".joblib")


@pytest.fixture
def marker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("marked") / "marker"
    yield path
    assert not path.exists(), "a payload has run"


@pytest.fixture
def data() -> None:
    npz(
        Path("d.npz"), {"images.npy": whole(np.zeros((4, 3, 3), np.uint8)), "labels.npy": whole(np.array([0, 1, 0, 1]))}
    )


def command(*more: str) -> tuple[str, ...]:
    return (
        "audit",
        "--data",
        "d.npz",
        "--model",
        "mlp",
        "--images",
        "1",
        "--attack",
        "linear",
        "--metric",
        "psnr",
        *more,
    )


@pytest.mark.parametrize("kind", LIVE)
def test_the_payloads_are_live(kind: str, marker: Path) -> None:
    """Otherwise nothing below would mean anything."""
    pickle.loads(payloads(marker)[kind])
    assert marker.exists()
    marker.unlink()


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("kind", KINDS)
def test_as_weights_nothing_is_read(kind: str, marker: Path, refused) -> None:
    content = payloads(marker)[kind]
    for suffix in SUFFIXES:
        Path(f"w{suffix}").write_bytes(content)
        line = refused(*command("--weights", f"w{suffix}"), naming=f"w{suffix}: ")
        pickled = suffix in (".pt", ".BIN")
        assert ("safetensors.torch.save_file" in line and "--allow-pickle" in line) == pickled


@pytest.mark.parametrize("kind", KINDS)
def test_as_data_config_or_picture_nothing_is_run(kind: str, marker: Path, refused) -> None:
    content = payloads(marker)[kind]
    Path("mine/a").mkdir(parents=True)
    for name in ("d.npz", "a.toml", "mine/a/x.png", "cifar100_labels.npz", "l.npz"):
        Path(name).write_bytes(content)
    refused("audit", "--data", "d.npz", naming="d.npz: ")
    refused("audit", "a.toml", naming="a.toml: ")
    refused("audit", "--data", "mine", naming="mine/a/x.png: ")
    refused("audit", "--data", "cifar100", "--data-option", "root=.", naming="cifar100_labels.npz: ")
    refused("audit", "--data", "digits", "--metric", "lpips", "--lpips-weights", "l.npz", naming="l.npz: ")


def test_a_config_cannot_ask_for_a_pickle(tmp_path: Path) -> None:
    for text in (
        "allow_pickle = true",
        "[scenario]\nallow_pickle = true",
        "[scenario.data_options]\nallow_pickle = true",
    ):
        (tmp_path / "a.toml").write_text(text.replace("[scenario]\n", "[scenario]\nattacker = 'curious'\n"))
        with pytest.raises(ConfigError, match=r"allow_pickle: unknown key|attacker: is not stated"):
            load(tmp_path / "a.toml")


CHILD = """
import importlib.util, io, json, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
spec = importlib.util.spec_from_file_location("unpickle", sys.argv[1])
unpickle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(unpickle)
files = {path: Path(path).read_bytes() for path in sys.argv[2:]}
import torch
unpickle.confine(2**28)
result = {}
for path, content in files.items():
    try:
        unpickle.state_dict(torch.load(io.BytesIO(content), weights_only=True, map_location="cpu"))
        result[path] = "read"
    except Exception as error:
        result[path] = unpickle.describe(error)
print(json.dumps(result))
"""


def test_asked_for_they_are_refused_in_the_child(tmp_path: Path, marker: Path) -> None:
    """All of them in one process, which is confined as the real one is."""
    for kind, content in payloads(marker).items():
        (tmp_path / f"{kind}.pt").write_bytes(content)
    command = [sys.executable, "-I", "-c", CHILD, unpickle.__file__, *map(str, tmp_path.glob("*.pt"))]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    report = {Path(path).stem: line for path, line in json.loads(child.stdout).items()}
    assert set(report) == set(KINDS)
    assert "read" not in report.values()
    assert "it asks for posix.system" in report["torch zip around tensors"]
    assert all("\n" not in line and "weights_only" not in line for line in report.values())


@pytest.mark.usefixtures("data")
def test_asked_for_on_the_command_line(marker: Path, refused) -> None:
    Path("w.pt").write_bytes(payloads(marker)["torch zip around tensors"])
    refused(*command("--weights", "w.pt", "--allow-pickle"), naming="w.pt: refused, it asks for ")


ESCAPES = {
    "socket": "socket.socket()",
    "address": "socket.getaddrinfo('localhost', 80)",
    "shell": "os.system('true')",
    "process": "subprocess.run(['true'])",
    "fork": "os.fork()",
    "file": "open('new', 'w')",
    "handle": "os.open('new', os.O_CREAT | os.O_WRONLY)",
    "delete": "os.remove('kept')",
    "rename": "os.rename('kept', 'lost')",
    "folder": "os.mkdir('new')",
    "memory": "bytearray(2**30)",
    "library": "ctypes.CDLL(None)",
}


def test_the_child_has_no_door_to_the_outside(tmp_path: Path) -> None:
    """Should the wall fall, these are what a payload would try."""
    (tmp_path / "kept").write_text("x")
    script = (
        "import ctypes, json, os, socket, subprocess, sys\n"
        f"sys.path.insert(0, {str(Path(unpickle.__file__).parent)!r})\n"
        "import unpickle\n"
        "unpickle.confine(2**28)\n"
        "result = {}\n"
        f"for name, text in {ESCAPES!r}.items():\n"
        "    try:\n        eval(text); result[name] = 'done'\n"
        "    except (PermissionError, MemoryError) as error:\n        result[name] = type(error).__name__\n"
        "print(json.dumps(result))\n"
    )
    child = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(child.stdout) == dict.fromkeys(ESCAPES, "PermissionError") | {"memory": "MemoryError"}
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.usefixtures("data")
def test_an_honest_checkpoint_is_read_when_asked_for(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trained, fresh = (MODELS["mlp"](classes=2, shape=(1, 3, 3), seed=seed) for seed in (1, 2))
    for content in (trained.state_dict(), {"state_dict": trained.state_dict(), "epoch": 3}):
        torch.save(content, "w.pt")
        before = {name.name for name in tmp_path.iterdir()}
        with allow_pickles():
            load_weights(fresh, Path("w.pt"))
        assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), fresh.parameters(), strict=True))
        assert {name.name for name in tmp_path.iterdir()} == before
        digest = subprocess.run(["sha256sum", "w.pt"], capture_output=True, text=True, check=True).stdout.split()[0]
        place = ", found under state_dict" if "state_dict" in content else ""
        assert capfd.readouterr().err == f"w.pt: tensors read out of a pickle, sha256 {digest}{place}\n"
    with pytest.raises(ConfigError, match="allow_pickle"):  # asked for once is not asked for ever
        load_weights(fresh, Path("w.pt"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(2)], "list instead of a state dict"),
        ({}, "dict instead of a state dict"),
        ({"a": 3}, "'a' is int"),
        ({3: torch.zeros(2)}, "a state dict holds tensors by name"),
        ({"a": torch.eye(2).to_sparse()}, "sparse"),
        ({"a": torch.zeros(2, device="meta")}, "empty of numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_state_dict(content: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpickle.state_dict(content)


def test_a_checkpoint_that_would_fill_the_memory(tmp_path: Path) -> None:
    """One number, told to be a million by a million of them."""
    torch.save({"a": torch.zeros(1).expand(10**6, 10**6)}, tmp_path / "w.pt")
    with allow_pickles(), pytest.raises(ConfigError, match="memory") as caught:
        load_weights(MODELS["mlp"](classes=2, shape=(1, 3, 3), seed=0), tmp_path / "w.pt")
    assert str(caught.value).startswith(f"{tmp_path / 'w.pt'}: refused")


def test_it_needs_a_torch_whose_wall_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({}, tmp_path / "w.pt")
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with allow_pickles(), pytest.raises(ConfigError, match=r"needs torch 2\.10 or later"):
        load_weights(MODELS["mlp"](classes=2, shape=(1, 3, 3), seed=0), tmp_path / "w.pt")
