"""A training that was interrupted: networks and optimizers as tensors in one safetensors file, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.core.hashes import TELLING, differences
from gradveil.models.header import read_header

if TYPE_CHECKING:
    from gradveil.generators.training import Learner


class Checkpoint:
    """Where a learner's state is kept, and what it belongs to."""

    def __init__(self, path: Path, learner: Learner, identity: Mapping[str, object]) -> None:
        self.path, self.learner = path, learner
        self.identity: dict[str, Any] = json.loads(json.dumps(identity))

    def save(self, epoch: int, seconds: float) -> None:
        metadata = {"identity": json.dumps(self.identity), "epoch": str(epoch), "seconds": repr(seconds)}
        tensors = {name: x.detach().cpu().contiguous() for name, x in self._state().items()}
        write_whole(self.path, save(tensors, metadata=metadata))

    def load(self) -> tuple[int, float]:
        """Epochs and seconds behind us; the learner is as it was then. Nothing there: (0, 0)."""
        if not self.path.exists():
            return 0, 0.0
        metadata, tensors = self._read()
        try:
            other = differences(json.loads(metadata["identity"]), self.identity)
            if not other:
                self._restore(tensors)
                return int(metadata["epoch"]), float(metadata["seconds"])
        except (ValueError, KeyError, RuntimeError) as error:
            raise ConfigError(f"{self.path}: damaged, remove the file to begin again") from error
        raise ConfigError(
            f"{self.path}: an interrupted training with other settings ({'; '.join(other[:TELLING])}), "
            "give the same command again or remove the file"
        )

    def _read(self) -> tuple[dict[str, str], dict[str, Tensor]]:
        try:
            read_header(self.path, self.path)
            with safe_open(self.path, framework="pt") as opened:
                metadata = opened.metadata() or {}
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{self.path}: cannot be read ({error}), remove the file to begin again") from error
        if not {"identity", "epoch", "seconds"} <= set(metadata):
            raise ConfigError(f"{self.path}: is no interrupted training, remove the file")
        return metadata, tensors

    def _state(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, network in self.learner.networks.items():
            found |= {f"network|{name}|{key}": x for key, x in network.state_dict().items()}
        for name, optimizer in self.learner.optimizers.items():
            for number, moments in optimizer.state_dict()["state"].items():
                found |= {f"optimizer|{name}|{number}|{key}": torch.as_tensor(x) for key, x in moments.items()}
        return found

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        weights: dict[str, dict[str, Tensor]] = {name: {} for name in self.learner.networks}
        moments: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in self.learner.optimizers}
        for name, tensor in tensors.items():
            kind, owner, rest = name.split("|", 2)
            if kind == "network":
                weights[owner][rest] = tensor
            else:
                number, key = rest.split("|")
                moments[owner].setdefault(int(number), {})[key] = tensor
        for name, network in self.learner.networks.items():
            network.load_state_dict(weights[name])
        for name, optimizer in self.learner.optimizers.items():
            optimizer.load_state_dict({**optimizer.state_dict(), "state": moments[name]})
