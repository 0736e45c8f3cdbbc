"""Trained weights, from safetensors: reading a pickle can run code. Who asks for one gets a child process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.models.header import read_header
from gradveil.models.library import WEIGHTS, GivesLogits, is_model_folder, tensors_of_folder
from gradveil.models.notes import say_once
from gradveil.models.prefix import match_names

PICKLES = {".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".bin"}
LISTED = 5
CONSTANTS = {"normalize.mean", "normalize.std"}
CONVERT = "convert it where you trust it: safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
FIRST_TORCH = (2, 10)  # whose `weights_only` is trusted with files of unknown origin
PATIENCE = 300  # seconds for the child, on a slow disk too; its own processor time is limited in `unpickle.py`

_asked_for_pickles: ContextVar[bool] = ContextVar("asked_for_pickles", default=False)


class OtherModelError(ConfigError):
    """The weights are of another model; `unexpected` are the shapes of those that this one does not have."""

    def __init__(self, message: str, unexpected: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__(message)
        self.unexpected = dict(unexpected)


@contextmanager
def allow_pickles(asked: bool = True) -> Iterator[None]:
    """Inside, `load_weights` reads a pickle's tensors. The command line alone asks for it, never a config file."""
    token = _asked_for_pickles.set(asked)
    try:
        yield
    finally:
        _asked_for_pickles.reset(token)


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the file's tensors into the model: every name, every shape, every number finite, or nothing changes."""
    if isinstance(model, GivesLogits) and path.name == WEIGHTS and is_model_folder(str(path.parent)):
        model.load_state_dict(_read_folder(model, path), strict=True)
        return
    if not _is_pickle(path):
        model.load_state_dict(_read_fitting(path, path, model.state_dict()), strict=True)
        return
    with tempfile.TemporaryDirectory(prefix="gradveil-") as folder:
        converted = Path(folder) / "weights.safetensors"
        digest = _convert(path, converted)
        model.load_state_dict(_read_fitting(converted, path, model.state_dict()), strict=True)
    print(f"{path}: tensors read out of a pickle, sha256 {digest}", file=sys.stderr)


def _is_pickle(path: Path) -> bool:
    pickled = path.suffix.lower() in PICKLES
    if pickled and not _asked_for_pickles.get():
        raise ConfigError(
            f"{path}: pickles are not read because reading one can run code, {CONVERT}; "
            "or set `allow_pickle` to read its tensors in a process of its own"
        )
    if not pickled and path.suffix.lower() != ".safetensors":
        raise ConfigError(f"{path}: weights must be a .safetensors file, {CONVERT}")
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, give the path of a .safetensors file")
    return pickled


def _convert(path: Path, target: Path) -> str:
    """The pickle's tensors as a safetensors file, made by a child process; returns the pickle's SHA-256."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < FIRST_TORCH:
        raise ConfigError(f"{path}: `allow_pickle` needs torch 2.10 or later, this is {torch.__version__}; {CONVERT}")
    script = Path(__file__).with_name("unpickle.py")
    command = [sys.executable, "-I", "-W", "ignore", str(script), str(path.resolve()), str(target)]
    try:
        child = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{path}: not read within {PATIENCE} seconds; {CONVERT}") from error
    if child.returncode != 0:
        reason = child.stderr.strip().splitlines()[-1:] or ["stopped at its limits of memory and time"]
        raise ConfigError(f"{path}: refused, {reason[0][:300]}; ask its author for a .safetensors file")
    return child.stdout.strip()


def _read_folder(model: GivesLogits, path: Path) -> dict[str, Tensor]:
    """A file of Hugging Face's, sound before the library reads it, and as the model has it afterwards."""
    read_header(path, path)
    tensors, expected = tensors_of_folder(model, path), model.state_dict()
    _check_names(path, expected, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
    return {name: _as_expected(path, name, tensor, expected[name]) for name, tensor in tensors.items()}


def _read_fitting(file: Path, path: Path, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, which errors call `path`, as the model has them."""
    shapes = read_header(file, path)
    own, note = match_names(shapes, expected)
    _check_names(path, expected, {own[name]: shape for name, shape in shapes.items() if name in own})
    try:
        with safe_open(file, framework="pt") as opened:
            tensors = {own[name]: opened.get_tensor(name) for name in own}
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file ({error}), save it again") from error
    if note:
        say_once(f"{path}: {note}")
    return {name: _as_expected(path, name, tensor, expected[name]) for name, tensor in tensors.items()}


def _check_names(path: Path, expected: dict[str, Tensor], found: dict[str, tuple[int, ...]]) -> None:
    missing = [name for name in expected if name not in found]
    unexpected = {name: shape for name, shape in found.items() if name not in expected}
    misshaped = [
        f"{name} {found[name]} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name] != tuple(tensor.shape)
    ]
    kinds = [("missing", missing), ("unexpected", list(unexpected)), ("of another shape", misshaped)]
    faults = [f"{len(names)} {kind}: {_first(names)}" for kind, names in kinds if names]
    if faults:
        hint = _constants_hint(missing, list(unexpected))
        raise OtherModelError(f"{path}: not the weights of this model, {'; '.join(faults)}{hint}", unexpected)


def _constants_hint(missing: list[str], unexpected: list[str]) -> str:
    """What to do where nothing but the constants of normalization is different."""
    if unexpected and not missing and set(unexpected) <= CONSTANTS:
        return "; the weights hold constants of their own, leave `normalize` out"
    if missing and not unexpected and set(missing) <= CONSTANTS:
        return "; the weights hold no constants, set `normalize` to those of their training"
    return ""


def _first(names: list[str]) -> str:
    rest = len(names) - LISTED
    return ", ".join(name[:200] for name in names[:LISTED]) + (f" and {rest} more" if rest > 0 else "")


def _as_expected(path: Path, name: str, tensor: Tensor, expected: Tensor) -> Tensor:
    """In the model's type. Finite in the file is not enough: 1e300 is finite, and infinite as float32."""
    if tensor.is_floating_point() != expected.is_floating_point():
        raise ConfigError(f"{path}: {name}: is {tensor.dtype}, the model has {expected.dtype}, save it as that type")
    converted = tensor.to(expected.dtype)
    bad = int((~torch.isfinite(converted)).sum())
    if bad:
        raise ConfigError(f"{path}: {name}: {bad} non-finite of {tensor.numel()}, train or export the model again")
    return converted
