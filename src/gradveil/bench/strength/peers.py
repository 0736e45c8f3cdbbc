"""How others take part: what an attacker has goes out as files, and their reconstructions come back as one file.

A peer's code is never run here and never stored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from gradveil.bench.strength.cases import Case
from gradveil.bench.strength.contest import Entry, judge
from gradveil.bench.strength.settings import MODEL_NAMES
from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files, write_whole
from gradveil.data.npz import array_names, read_arrays

LARGEST = 2**28  # bytes of a peer's file
SECONDS = ".seconds"  # ends the name of the processor time of a setting, if a peer says it


def export_case(case: Case, folder: Path) -> None:
    """Model, update and labels as far as the attacker has them; never the pictures."""
    seen = case.seen
    tensors = {f"model.{name}": value for name, value in seen.model.state_dict().items()}
    tensors |= {f"update.{name}": value for name, value in seen.update.items()}
    if seen.labels is not None:
        tensors["labels"] = seen.labels
    plain = {name: value.detach().clone().contiguous() for name, value in tensors.items()}
    content = save(plain, {"setting": json.dumps(describe_case(case))})
    with private_files():
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{case.setting.name}.safetensors", content)


def describe_case(case: Case) -> dict[str, Any]:
    """All numbers that a peer needs to build the model and to repeat the client's step."""
    seen = case.seen
    return {
        **asdict(case.setting),
        "name": case.setting.name,
        "model": MODEL_NAMES[case.setting.model],
        "classes": seen.classes,
        "shape": list(seen.shape),
        "mean": list(case.mean),
        "std": list(case.std),
        "rate": seen.training.rate,
        "loss": seen.training.loss,
        "answer": [len(seen.names), seen.examples, *seen.shape],  # shape of the reconstructions, in [0, 1]
    }


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Reconstructions by name of the setting, [client, example, channel, height, width]; settings may be missing."""

    name: str
    pictures: Mapping[str, Tensor]
    seconds: Mapping[str, float]

    def judge(self, case: Case) -> Entry | None:
        """None where it took no part."""
        name = case.setting.name
        if name not in self.pictures:
            return None
        shown, expected = self.pictures[name], case.truth.private.images.shape
        if shown.shape != expected:
            raise ConfigError(
                f"{self.name}: {name} must have the shape {tuple(expected)}, got {tuple(shown.shape)}", key="peer"
            )
        return judge(case, self.name, shown, None, self.seconds.get(name))


def read_peer(path: Path, settings: Iterable[str]) -> Peer:
    """A .safetensors or .npz file, never a pickle: every name, number and size is checked."""
    known = {*settings}
    tensors = _read(path)
    pictures = {name: one for name, one in tensors.items() if not name.endswith(SECONDS)}
    for name, one in pictures.items():
        if name not in known:
            raise ConfigError(f"{path}: {name!r} is no setting, take one of {', '.join(sorted(known))}", key="peer")
        if not one.is_floating_point() or one.dim() != 5 or not one.isfinite().all():
            raise ConfigError(
                f"{path}: {name} must be finite numbers [client, example, channel, height, width] in [0, 1]", key="peer"
            )
    if not pictures:
        raise ConfigError(f"{path}: no reconstruction in it, name arrays after settings", key="peer")
    return Peer(name=path.stem, pictures=pictures, seconds=dict(_seconds(path, tensors)))


def _seconds(path: Path, tensors: Mapping[str, Tensor]) -> Iterable[tuple[str, float]]:
    for name, one in tensors.items():
        if name.endswith(SECONDS):
            value = float(one) if one.numel() == 1 else math.nan
            if not value >= 0:
                raise ConfigError(f"{path}: {name} must be one number of seconds, 0 or more", key="peer")
            yield name.removesuffix(SECONDS), value


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, give a .safetensors or .npz file of reconstructions", key="peer")
    if path.stat().st_size > LARGEST:
        raise ConfigError(f"{path}: more than {LARGEST / 2**20:.0f} MiB, store float16 or fewer settings", key="peer")
    if path.suffix == ".npz":
        return {name: _tensor(path, name, one) for name, one in read_arrays(path, array_names(path)).items()}
    if path.suffix != ".safetensors":
        raise ConfigError(f"{path}: must be .safetensors or .npz, since reading a pickle can run code", key="peer")
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ConfigError(f"{path}: no safetensors file ({error}), save it again", key="peer") from error


def _tensor(path: Path, name: str, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "fiu":
        raise ConfigError(f"{path}: {name} holds {array.dtype}, must hold numbers", key="peer")
    return torch.from_numpy(array.astype(np.float64) if array.dtype.kind != "f" else array)
