"""What is looked at: everything is loaded once, and what cannot be loaded is said."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from gradveil import data
from gradveil.audit.audit import Audit
from gradveil.audit.plan import clients_of
from gradveil.capture.format import Capture
from gradveil.capture.names import rename_for
from gradveil.capture.read import load as load_capture
from gradveil.config.build import build, loss_for, model_of
from gradveil.config.captured_audit import model_as_sent, with_own_loss
from gradveil.config.checkpoint import load_checkpoint
from gradveil.config.schema import AuditConfig
from gradveil.config.training import training_of
from gradveil.config.try_loss import try_loss
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.server import observe, observe_agreed, observe_received
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.defenses import DEFENSES
from gradveil.models.notes import collect_notes


@dataclass(kw_only=True)
class Subject:
    """A model, pictures, a training and, where there is one, what a real client sent."""

    config: AuditConfig
    by_budget: Mapping[str, AuditConfig]  # the same audit with each budget
    model: nn.Module
    dataset: Dataset | None
    training: LocalTraining
    capture: Capture | None = None
    notes: Sequence[str] = ()  # what was filled in or understood while the model was made
    fault: str = ""  # why the weights do not fit
    until: float = float("inf")  # of `time.monotonic`: what is long ends here
    hopeless: bool = False  # whether a look has found that nothing sensible can follow

    @property
    def batch(self) -> Batch | None:
        """Pictures of one client, the first ones of the data."""
        if self.dataset is None:
            return None
        count = self.config.scenario.batch_size
        return Batch(self.dataset.images[:count], self.dataset.targets[:count])

    @cached_property
    def audit(self) -> Audit:
        """The audit to come. Captured rounds are not played again for it, and weights are not read again."""
        bare = replace(self.config, scenario=replace(self.config.scenario, weights=""))
        with collect_notes():  # which were said before
            audit = build(bare, self.dataset, replays=False)
        trained = bool(self.config.scenario.weights)
        return replace(audit, scenario=replace(audit.scenario, model=self.model, trained=trained))

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Attacks that have nothing to work on in one client's update, and why."""
        return find_left_out(self.audit)

    @property
    def is_declared(self) -> bool:
        """Whether anybody said how clients train."""
        said = {key.removeprefix("scenario.") for key in self.config.declared}
        return self.capture is not None or bool(said & {"local_steps", "local_rate", "optimizer", "epochs"})


def open_subject(config: AuditConfig, by_budget: Mapping[str, AuditConfig], seconds: float) -> Subject:
    """ConfigError if the settings, the data or the model cannot be used at all."""
    given: dict[str, Any] = {"config": config, "by_budget": by_budget, "until": time.monotonic() + seconds}
    scenario = config.scenario
    dataset = data.load(scenario.data, **scenario.data_options) if scenario.data else None
    with collect_notes() as notes:
        if scenario.capture:
            capture = with_own_loss(load_capture(scenario.capture), scenario.loss)
            model = model_as_sent(capture, config)
            capture, renamed = rename_for(capture, model)
            notes += [renamed] if renamed else []
            given |= {"capture": capture, "training": capture.training, "notes": notes}
            return Subject(model=model, dataset=dataset, **given)
        assert dataset is not None
        model, fault = _load(config, dataset)
    training = training_of(scenario, loss_for(scenario, dataset))
    try_loss(model, training, Batch(dataset.images, dataset.targets))
    return Subject(model=model, dataset=dataset, training=training, fault=fault, notes=notes, **given)


def _load(config: AuditConfig, dataset: Dataset) -> tuple[nn.Module, str]:
    """The model with its weights or, if they do not fit, without them and why."""
    plain = model_of(replace(config.scenario, weights=""), dataset)
    if not config.scenario.weights:
        return plain, ""
    defenses = {label: DEFENSES[choice.name](**choice.options) for label, choice in config.defense.items()}
    try:
        return load_checkpoint(copy.deepcopy(plain), Path(config.scenario.weights), defenses), ""
    except ConfigError as error:
        return plain, str(error)


def find_left_out(audit: Audit) -> dict[str, str]:
    """Attacks that have nothing to work on in one client's update, and why."""
    first, found = clients_of(audit.scenario, slice(1)), {}
    is_received = first.received is not None
    plain = (observe_received(first, Defense()) if is_received else observe_agreed(first, Defense(), Seed(audit.seed)))[
        0
    ]
    for label, attack in audit.attacks.items():
        plants = "malicious" in attack.requires
        try:
            attack.check(observe(first, Defense(), attack, Seed(audit.seed))[0] if plants else plain)
        except NotApplicableError as error:
            found[label] = str(error)
    return found
