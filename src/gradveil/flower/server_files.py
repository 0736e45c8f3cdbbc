"""What a Flower server needs to go on after it was killed: the model after each round, and its momentum."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files, write_whole
from gradveil.models import load_weights
from gradveil.train.state import RoundResult

CURVE = "curve.jsonl"
_MODEL = re.compile(r"model-(\d{4,})\.safetensors")


@dataclass(frozen=True)
class ServerFiles:
    """A folder with the last model, those asked for, and one line for each round."""

    folder: Path

    def models(self) -> dict[int, Path]:
        """By round; the file of a round is there only when the round is over."""
        found = {path: _MODEL.fullmatch(path.name) for path in self.folder.glob("model-*.safetensors")}
        return dict(sorted((int(match[1]), path) for path, match in found.items() if match))

    def keep(
        self, round: int, model: Mapping[str, Tensor], velocity: Mapping[str, Tensor], wanted: Collection[int]
    ) -> None:
        """The velocity first: a model without one would go on as if it had none."""
        older = self.models()
        if velocity:
            write_whole(self._velocity(round), save(dict(velocity)))
        write_whole(self.folder / f"model-{round:04d}.safetensors", save({n: t.clone() for n, t in model.items()}))
        for number, path in older.items():
            if number < round and number not in wanted:
                path.unlink()
                self._velocity(number).unlink(missing_ok=True)

    def resume(self, model: nn.Module, momentum: bool) -> tuple[int, dict[str, Tensor]]:
        """Puts the last model's weights into `model`: the rounds that are done, and the velocity."""
        models = self.models()
        if not models:
            return 0, {}
        last = max(models)
        load_weights(model, models[last])
        if not momentum:
            return last, {}
        path = self._velocity(last)
        if not path.is_file():
            raise ConfigError(
                f"{path}: no such file, restore it: without the momentum the rounds after {last} would differ"
            )
        return last, load(path.read_bytes())

    def add(self, result: RoundResult) -> None:
        append_line(self.folder / CURVE, {k: v if v == v else None for k, v in asdict(result).items()})

    def curve(self) -> tuple[RoundResult, ...]:
        """Every round once: one that was played again after a crash counts as it was played last."""
        path = self.folder / CURVE
        lines = {line["round"]: line for line in read_lines(path)} if path.is_file() else {}
        rounds = [{**line, "names": tuple(line["names"])} for _, line in sorted(lines.items())]
        return tuple(RoundResult(**{**line, "loss": _number(line["loss"])}) for line in rounds)

    def _velocity(self, round: int) -> Path:
        return self.folder / f"velocity-{round:04d}.safetensors"


def append_line(path: Path, line: Mapping[str, Any]) -> None:
    """On disk before the next. The torn end that a crash may have left is cut off first."""
    with private_files(), path.open("a+b") as file:
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
