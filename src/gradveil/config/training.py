"""From the keys of a scenario to the local training that they describe, and back."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from gradveil.config.schema import ScenarioConfig
from gradveil.core.check import Where
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining, Loss, as_loss
from gradveil.core.own_loss import OwnLoss, load_loss

RENAMED = {"steps": "local_steps", "rate": "local_rate", "batch_size": "local_batch_size"}
MOST_STEPS = 100_000
KEYS = {RENAMED.get(one.name, one.name): one.name for one in fields(LocalTraining)}  # of a scenario -> of a training


def training_of(config: ScenarioConfig, loss: Loss | OwnLoss) -> LocalTraining:
    """One client's round. ConfigError if its settings contradict each other."""
    values = {name: getattr(config, key) for key, name in KEYS.items()}
    return LocalTraining(**{**values, "batch_size": config.local_batch_size or None, "loss": loss})


def check_training(config: ScenarioConfig, where: Where) -> None:
    """The same before any data is loaded."""
    if config.epochs and config.local_steps != 1:
        raise ConfigError("is given beside local_steps, leave one of them out", key=where("scenario.epochs"))
    try:
        training = training_of(config, "cross-entropy" if config.loss == "auto" else as_loss(config.loss))
        if isinstance(training.loss, OwnLoss):
            load_loss(training.loss)
    except ConfigError as error:
        raise ConfigError(error.message, key=where(f"scenario.{error.key or 'loss'}")) from error
    if (steps := training.for_examples(config.batch_size).steps) > MOST_STEPS:
        raise ConfigError(f"must be at most {MOST_STEPS:,} local steps, got {steps:,}", key=where("scenario.epochs"))


def tables_of(training: LocalTraining) -> dict[str, Any]:
    """The keys of a scenario that describe this training."""
    values = asdict(training)
    values |= {"batch_size": training.batch_size or 0, "loss": str(training.loss)}
    return {key: values[name] for key, name in KEYS.items()}
