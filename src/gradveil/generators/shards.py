"""What was simulated so far, in files of one chunk each, so that an interruption loses one chunk at most."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.core.hashes import TELLING, differences
from gradveil.generators.simulate import Simulated
from gradveil.models.header import read_header


class Shards:
    """Chunks by number in a folder, and what they belong to. Public pictures and features of their updates alone."""

    def __init__(self, folder: Path, identity: Mapping[str, object]) -> None:
        self.folder = folder
        self.identity = json.loads(json.dumps(identity))

    def write(self, number: int, simulated: Simulated) -> None:
        self.folder.mkdir(exist_ok=True)
        tensors = {name: x.cpu().contiguous() for name, x in simulated._asdict().items()}
        write_whole(self._file(number), save(tensors, metadata={"identity": json.dumps(self.identity)}))

    def read(self, number: int) -> Simulated | None:
        """None: not simulated yet. ConfigError: by other settings, or damaged."""
        file = self._file(number)
        if not file.is_file():
            return None
        try:
            read_header(file, file)
            with safe_open(file, framework="pt") as opened:
                there = json.loads((opened.metadata() or {})["identity"])
                simulated = Simulated(*(opened.get_tensor(name) for name in Simulated._fields))
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            raise ConfigError(f"{file}: damaged, remove the folder to begin again") from error
        if other := differences(there, self.identity):
            raise ConfigError(
                f"{self.folder}: an interrupted training with other settings ({'; '.join(other[:TELLING])}), "
                "give the same command again or remove the folder"
            )
        return simulated

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06d}.safetensors"
