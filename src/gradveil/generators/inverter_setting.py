"""What an inverter was trained for: it applies to updates of this model, training and defense, and to no others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_tensors, sha256
from gradveil.core.scenario import LocalTraining
from gradveil.generators.inverter import KIND, TRAIN
from gradveil.generators.stored import metadata_of

ENTRY = "setting"  # of the metadata
OTHER = "was trained through another model or other weights"
LONGEST = 300  # letters of a defense
UNDEFENDED = repr(Defense())


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The model as sent (SHA-256 of its weights), pictures of a client, local training, and the defense."""

    model: str
    shape: tuple[int, ...]
    examples: int
    training: Mapping[str, Any]
    defense: str

    @classmethod
    def of(
        cls, model: nn.Module, training: LocalTraining, defense: Defense, examples: int, shape: tuple[int, ...]
    ) -> Setting:
        steps = training.to_table()
        return cls(
            model=hash_weights(model), shape=tuple(shape), examples=examples, training=steps,
            defense=describe_defense(defense),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "shape": list(self.shape), "training": dict(self.training)}

    def mismatch(self, seen: Setting) -> str:
        """Why an inverter with this setting cannot take updates with that one, the defense aside; empty if it can."""
        if self.shape != seen.shape or self.model != seen.model:
            return OTHER if self.shape == seen.shape else self.other_shape(seen.shape)
        if self.examples != seen.examples:
            return f"was trained for batches of {self.examples}, here are batches of {seen.examples}"
        other = sorted(k for k in {*self.training, *seen.training} if self.training.get(k) != seen.training.get(k))
        differs = ", ".join(f"{key} = {self.training.get(key)}, here {seen.training.get(key)}" for key in other)
        return f"was trained for other local training ({differs})" if other else ""

    def other_shape(self, shape: tuple[int, ...]) -> str:
        return f"draws pictures of {'x'.join(map(str, self.shape))}, these have {'x'.join(map(str, shape))}"

    def wrong_model(self, model: nn.Module, shape: tuple[int, ...]) -> str:
        """Why it cannot draw pictures of this shape of this model's updates; empty if it can."""
        if self.shape != tuple(shape):
            return self.other_shape(shape)
        return "" if self.model == hash_weights(model) else OTHER


def hash_weights(model: nn.Module) -> str:
    """The same in every precision that holds the weights as they are."""
    weights = {name: x.float() if x.is_floating_point() else x for name, x in model.state_dict().items()}
    return hash_tensors(weights)


def describe_defense(defense: Defense) -> str:
    """With all of its options, as it is bound to a scenario."""
    text = repr(defense)
    return text if len(text) <= LONGEST else f"{type(defense).__name__} {sha256(text.encode())}"


def read_setting(file: str | Path) -> Setting:
    """Of the metadata of a file that `gradveil train-inverter` wrote."""
    metadata = metadata_of(file, TRAIN)
    if metadata.get("kind") != KIND:
        raise ConfigError(f"{file}: holds {metadata.get('kind', 'weights of unknown kind')}, not {KIND}, {TRAIN}")
    try:
        return _parse(json.loads(metadata[ENTRY]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{file}: does not say what it was trained for, {TRAIN}") from error


def _parse(there: Any) -> Setting:
    """ValueError, KeyError or TypeError for anything but a setting."""
    shape, training = tuple(there["shape"]), dict(there["training"])
    setting = Setting(**{**there, "shape": shape, "training": training})
    texts, counts = (setting.model, setting.defense, *training), (*shape, setting.examples)
    if len(shape) != 3 or not all(type(x) is str for x in texts) or not all(type(x) is int for x in counts):
        raise ValueError("a field of another type")
    return setting
