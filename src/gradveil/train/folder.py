"""The folder of a training run: config, provenance, a journal of rounds, the state to go on from, and checkpoints.

The journal is on disk before the state is, so the state never speaks of a round that the journal does not know. Rounds
in the journal that came after the state are cut off and played again: they end the same, to the bit on a CPU.
"""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.core.hashes import hash_model, hash_tensors, own_version, sha256
from gradveil.core.types import Batch
from gradveil.experiment.folder import CONFIG, JOURNAL, PROVENANCE, RunFolder
from gradveil.experiment.journal import Journal, encode
from gradveil.experiment.provenance import SCHEMA, device_name, now
from gradveil.experiment.record import Record
from gradveil.train.state import State

STATE, CHECKPOINTS = "state.safetensors", "checkpoints"


class TrainingFolder(RunFolder):
    """A run's folder with a state and checkpoints in the place of pictures."""

    files = (CONFIG, PROVENANCE, JOURNAL, STATE)
    folders = (CHECKPOINTS,)
    kind = "training run"
    results = "rounds"

    def prepare(self, config: str, provenance: Mapping[str, Any]) -> None:
        """As of any run; a larger privacy budget may have added rounds, so the account is that of all of them."""
        super().prepare(config, provenance)
        if "privacy" in provenance:
            self._write_provenance({**self.read_provenance(), "privacy": provenance["privacy"]})

    def count_results(self) -> int:
        """The rounds that the state has behind it: later ones are played again."""
        state = self.load_state()
        return 0 if state is None else state.round

    def checkpoint(self, round: int) -> Path:
        return self.path / CHECKPOINTS / f"round-{round:06d}.safetensors"

    def save_checkpoint(self, round: int, model: nn.Module) -> Path:
        """The model's weights, as an audit takes them (`weights`)."""
        tensors = {name: x.detach().cpu().contiguous() for name, x in model.state_dict().items()}
        write_whole(self.checkpoint(round), save(tensors, {"gradveil.round": str(round)}))
        return self.checkpoint(round)

    def save_state(self, state: State) -> None:
        tensors = {name: x.detach().cpu().contiguous() for name, x in state.tensors().items()}
        metadata = {"round": str(state.round), "sha256": hash_tensors(tensors)}
        write_whole(self.path / STATE, save(tensors, metadata))

    def load_state(self) -> State | None:
        """Where the run stands; None before the first state. ConfigError if a byte of it has changed."""
        path = self.path / STATE
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{path}: cannot be read, {error}, restore the file") from error
        if not metadata or metadata.get("sha256") != hash_tensors(tensors):
            raise ConfigError(f"{path}: changed since it was written, restore the file")
        return State.of(int(metadata["round"]), tensors)


class RoundWriter:
    """The writer of a folder while training runs: rounds are kept in order, the state from time to time."""

    def __init__(self, home: TrainingFolder, journal: Journal, like: State, every: float) -> None:
        self.home, self.journal, self.every = home, journal, every
        self.state = home.load_state() or State(round=0, params={}, running={}, velocity={})
        self._check(like)
        self.state = self.state.in_order_of(like)
        self._drop_later_rounds()
        self.saved_at = time.monotonic()

    def _check(self, like: State) -> None:
        stored, expected = (
            {k: x.shape for k, x in s.tensors().items() if "residual/" not in k} for s in (self.state, like)
        )
        if (self.state.round and stored != expected) or self.state.round > len(self.journal.records):
            raise ConfigError(f"{self.home.path / STATE}: does not go with its run, restore the file")

    def _drop_later_rounds(self) -> None:
        """Cut off what came after the state."""
        records = self.journal.records[: self.state.round]
        self.journal.file.truncate(sum(len(encode(record)) for record in records))
        self.journal.records = records

    def write(self, records: Sequence[Record]) -> None:
        """Many rounds, one wait for the disk."""
        self.journal.file.write(b"".join(map(encode, records)))
        self.journal.file.flush()
        os.fsync(self.journal.file.fileno())
        self.journal.records += records

    def save(self, state: State, due: bool) -> None:
        if due or time.monotonic() - self.saved_at >= self.every:
            self.home.save_state(state)
            self.saved_at = time.monotonic()


def provenance_of(
    model: nn.Module, data: Mapping[str, Batch], config: str, seed: int, device: str, precision: str
) -> dict[str, Any]:
    """As of an audit: versions, hashes, command and times."""
    tensors = {f"{name}.{part}": x for name, batch in data.items() for part, x in batch._asdict().items()}
    return {
        "schema": SCHEMA,
        "gradveil": own_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device_name(device),
        "precision": precision,
        "seed": seed,
        "model_sha256": hash_model(model),
        "data_sha256": hash_tensors(tensors),
        "config_sha256": sha256(config.encode()),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": now(),
        "finished": None,
    }
