"""Where the settings of attacks were chosen: earlier runs, or a file of pictures. None of these may be audited.

A setting that was chosen on a picture fits it better than the next one, and the score would say so of an attacker who
never had the picture. A run tells as well how many settings were tried on each defense.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.experiment.folder import CONFIG, IMAGES
from gradveil.generators.provenance import TRAINED_ON, count_known, read_records, record_of

Choices = Mapping[str, Mapping[str, Any]]  # label -> name and options


def check_not_tuned_on(source: str, images: Tensor) -> None:
    """ConfigError if a picture [*, channel, height, width] is among those of a run folder or of a file."""
    if seen := count_known(images, _records(Path(source))):
        raise ConfigError(
            f"{source}: attacks were tuned on {seen} of the {len(images.flatten(0, -4))} pictures that are attacked, "
            "choose another `seed` or other pictures",
            key="tuned_on",
        )


def describe_tuning(sources: Iterable[str], defenses: Choices) -> dict[str, Any]:
    """For provenance: on how many pictures, and how many settings of attacks were tried on each defense."""
    known: set[bytes] = set()
    tried: dict[str, set[str]] = {label: set() for label in defenses}
    for path in map(Path, sources):
        known |= {row.numpy().tobytes() for row in _records(path)[TRAINED_ON]}
        for label, settings in _tried(path, defenses):
            tried[label] |= settings
    return {"pictures": len(known), "settings": {label: len(settings) for label, settings in tried.items()}}


def _tried(path: Path, defenses: Choices) -> Iterator[tuple[str, set[str]]]:
    """Of a run, the settings of its attacks for each of our defenses that it attacked too."""
    config = _config(path) if path.is_dir() else {}
    settings = {repr(sorted(choice.items())) for choice in config.get("attack", {}).values()}
    there = list(config.get("defense", {}).values())
    yield from ((label, settings) for label, choice in defenses.items() if dict(choice) in there)


def _config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: is not a run that can be read, {error}", key="tuned_on") from error


def _records(path: Path) -> dict[str, Tensor]:
    """Hashes and thumbnails of the pictures."""
    if path.is_dir():
        return record_of(_originals(path))
    records = read_records(path)
    if TRAINED_ON not in records:
        raise ConfigError(f"{path}: holds no hashes of pictures (`{TRAINED_ON}`), give a run", key="tuned_on")
    return records


def _originals(path: Path) -> Tensor:
    """The private pictures of a run, each once."""
    found: dict[bytes, Tensor] = {}
    for file in sorted((path / IMAGES).glob("*.safetensors")):
        try:
            pictures = load_file(file).get("original", torch.empty(0))
        except (SafetensorError, OSError) as error:
            raise ConfigError(f"{file}: cannot be read as pictures, {error}", key="tuned_on") from error
        found |= {picture.numpy().tobytes(): picture for picture in pictures}
    if not found:
        raise ConfigError(f"{path}: holds no private pictures, give the folder of a run", key="tuned_on")
    return torch.stack(list(found.values()))
