"""From the settings of an audit to what an inverter for it is trained on: its model, training and defense, and what is
public. The audit's victims and its gallery are no part of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradveil import data
from gradveil.audit.split import split_dataset
from gradveil.config.build import loss_for, scenario_of
from gradveil.config.resolve import resolve
from gradveil.config.schema import AuditConfig
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.data.base import check_classes
from gradveil.data.draw import draw_rows
from gradveil.defenses import DEFENSES
from gradveil.generators.labeled_pictures import Labeled, public_rows
from gradveil.generators.pictures import Source


@dataclass(frozen=True, kw_only=True)
class InverterData:
    """What `gradveil.generators.learn_inverter.train_inverter` takes."""

    scenario: Scenario
    defense: Defense
    public: Labeled


def prepare_inverter(config: AuditConfig, more: Sequence[Source] = ()) -> InverterData:
    """`more` are public data sets beside the rows of the audited one that are neither attacked nor in the gallery."""
    config = resolve(config)
    asked = config.scenario
    if asked.capture or len(config.defense) != 1:
        raise ConfigError(f"an inverter is trained through one defense, got {len(config.defense)}", key="defense")
    dataset = data.load(asked.data, **asked.data_options)
    check_classes(dataset)
    asked = replace(asked, loss=loss_for(asked, dataset))
    size = asked.batch_size * asked.aggregate
    parts = split_dataset(dataset, asked.images, size, config.gallery, config.seed, asked.draw, asked.canaries)
    defenses = {label: DEFENSES[c.name](**c.options) for label, c in config.defense.items()}
    hidden = {*parts.rows, *parts.canary_rows}
    rest = [row for row in draw_rows(len(dataset.images), Seed(config.seed), asked.draw) if row not in hidden]
    free = rest[0 if parts.gallery is None else len(parts.gallery) :]
    return InverterData(
        scenario=scenario_of(asked, dataset, parts, defenses),
        defense=next(iter(defenses.values())),
        public=public_rows(dataset, sorted(free), avoid=dataset.images[sorted(hidden)], more=more),
    )
