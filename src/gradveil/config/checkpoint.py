"""A checkpoint into the model that it was trained as: the plain one, or the one that a defense has made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.defenses import find_defense
from gradveil.models import load_weights
from gradveil.models.weights import OtherModelError


def load_checkpoint(model: nn.Module, path: Path, defenses: Mapping[str, Defense]) -> nn.Module:
    """The model with the file's weights, changed by a defense if that is what they are of.

    `Defense.model` leaves a model as it is that holds the change already, so what was trained is what is audited.
    """
    try:
        load_weights(model, path)
    except OtherModelError as error:
        return _load_changed(model, path, defenses, error)
    return model


def _load_changed(model: nn.Module, path: Path, defenses: Mapping[str, Defense], plain: OtherModelError) -> nn.Module:
    """As the first defense makes it that the file fits; whose change it has no names of is not tried."""
    error: ConfigError = plain
    for label, defense in defenses.items():
        changed = defense.model(model)
        if plain.unexpected.keys() & changed.state_dict().keys():
            try:
                load_weights(changed, path)
            except OtherModelError as other:
                error = ConfigError(
                    f"{other}; defense.{label}: give it the options of that training, its size above all"
                )
            else:
                return changed
    if error is plain and (found := find_defense(plain.unexpected)):
        spec = f"{found.name}:{','.join(f'{key}={value}' for key, value in found.options.items())}"
        error = ConfigError(f"{plain}; it was trained with {found.name}, use `defense = {spec}`")
    raise error


def describe_changed_model(model: nn.Module, defenses: Mapping[str, Defense]) -> str:
    """What to say of defenses that meet a model which another one has changed; empty if there is nothing to say."""
    changing = [label for label, defense in defenses.items() if defense.acts_at("model")]
    own = model.state_dict().keys()
    made = [label for label in changing if defenses[label].model(model).state_dict().keys() == own]
    others = [label for label in defenses if label not in changing]
    if not made or not others:
        return ""
    note = f"the weights are of the model that {made[0]} has changed"
    return f"{note}, and that model is what {', '.join(others)} is audited on too; only {made[0]} draws there"
