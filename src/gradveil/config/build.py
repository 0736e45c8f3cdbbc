"""A config to the audit it describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from gradveil import data
from gradveil.attacks import ATTACKS
from gradveil.audit.audit import Audit
from gradveil.audit.split import Split, split_dataset
from gradveil.config.checkpoint import load_checkpoint
from gradveil.config.load import to_tables
from gradveil.config.measure import metrics_of
from gradveil.config.normalization import AUTO, normalize_as
from gradveil.config.resolve import resolve
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.config.training import training_of
from gradveil.config.try_loss import try_loss
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.files import slug
from gradveil.core.own_loss import FORM, OwnLoss, is_own_loss, load_loss
from gradveil.core.scenario import Loss, Scenario, ThreatModel
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.data.draw import describe_rows
from gradveil.defenses import DEFENSES
from gradveil.models import MODELS, load_model
from gradveil.models.start import weights_from
from gradveil.models.user import is_user_model


def build(config: AuditConfig, dataset: Dataset | None = None, *, replays: bool = True) -> Audit:
    """Load the data, make model, defenses, attacks and metrics. Nothing is written.

    dataset: the data, where it is loaded already; replays: whether captured clients are played again.
    """
    config = resolve(config)
    if config.scenario.capture:
        from gradveil.config.captured_audit import build_captured

        return build_captured(config, dataset, replays=replays)
    dataset = dataset or data.load(config.scenario.data, **config.scenario.data_options)
    config = replace(config, scenario=replace(config.scenario, loss=loss_for(config.scenario, dataset)))
    largest = _most(config, "batch_size") * _most(config, "aggregate")
    asked = config.scenario
    parts = split_dataset(dataset, asked.images, largest, config.gallery, config.seed, asked.draw, _whole_groups(asked))
    defenses = {label: DEFENSES[c.name](**c.options) for label, c in config.defense.items()}
    scenario = scenario_of(config.scenario, dataset, parts, defenses)
    try_loss(scenario.model, scenario.training, Batch(*(x[0] for x in scenario.private)))
    unusual = canaries(scenario, parts)
    return Audit(
        scenario=scenario,
        also=(*variations(config, dataset, parts, defenses), *unusual),
        early=model_of(replace(config.scenario, weights=""), dataset) if scenario.trained else None,
        convergence=config.convergence,
        sequence=config.sequence,
        declared=config.declared,
        tuned_on=config.tuned_on,
        defenses=defenses,
        attacks={label: ATTACKS[c.name](**c.options) for label, c in config.attack.items()},
        metrics=metrics_of(config, dataset, scenario.model, parts.gallery),
        seed=config.seed,
        gallery=parts.gallery,
        gallery_labels=parts.gallery_labels,
        lineup=config.lineup,
        settings=to_tables(config),
        origin=rows_of(parts, unusual),
    )


def _most(config: AuditConfig, key: str) -> int:
    return max(getattr(config.scenario, key), *map(int, config.also.get(key, (1,))))


def _whole_groups(config: ScenarioConfig) -> int:
    """Canaries enough for every client to have as many pictures as the others have."""
    size = config.batch_size * config.aggregate
    return -(-config.canaries // size) * size


def canaries(scenario: Scenario, parts: Split) -> list[Scenario]:
    """The same clients and attackers with pictures chosen for being unusual; none where there are too few."""
    size = scenario.private.images.shape[1]
    clients = len(parts.canary_rows) // size
    if parts.canaries is None or not clients:
        return []
    private = Batch(*(x[: clients * size].unflatten(0, (clients, size)) for x in parts.canaries))
    names = tuple(f"u{client:04d}" for client in range(clients))
    return [replace(scenario, name=f"{scenario.name}-canaries", private=private, names=names, chosen=True)]


def rows_of(parts: Split, unusual: Sequence[Scenario]) -> dict[str, str]:
    """For provenance: which rows of the data are attacked."""
    count = sum(len(one.private.images.flatten(0, 1)) for one in unusual)
    chosen = {"canary_rows": describe_rows(parts.canary_rows[:count])} if count else {}
    return {"rows": describe_rows(parts.rows), **chosen}


def variations(
    config: AuditConfig, dataset: Dataset, parts: Split, defenses: Mapping[str, Defense]
) -> Iterator[Scenario]:
    """The scenario with one key changed at a time."""
    for key, values in config.also.items():
        for value in values:
            if value != getattr(config.scenario, key):
                changed = replace(config.scenario, **{key: value})
                name = f"{name_of(config.scenario)}-{key}-{slug(str(value)) or 'none'}"
                yield replace(scenario_of(changed, dataset, parts, defenses), name=name)


def scenario_of(config: ScenarioConfig, dataset: Dataset, parts: Split, defenses: Mapping[str, Defense]) -> Scenario:
    return Scenario(
        name=name_of(config),
        model=model_of(config, dataset, defenses),
        private=Batch(*(_group(x, config) for x in parts.victims)),
        names=parts.names,
        public=parts.public,
        trained=bool(config.weights),
        aggregate=config.aggregate,
        training=training_of(config, loss_for(config, dataset)),
        target_kind=dataset.target_kind,
        threat=ThreatModel(
            knows_labels=config.labels == "known",
            knows_training=config.training == "known",
            rounds=config.rounds,
            sees_encodings=config.encodings == "seen",
            may_plant=config.attacker == "malicious",
        ),
    )


def _group(victims: Tensor, config: ScenarioConfig) -> Tensor:
    """The first victims, in groups of this scenario's size: the same pictures whatever else is varied."""
    group = (config.images, config.batch_size * config.aggregate)
    return victims.flatten(0, 1)[: group[0] * group[1]].unflatten(0, group)


def loss_for(config: ScenarioConfig, dataset: Dataset) -> Loss | OwnLoss:
    """What was asked for, or what the data calls for."""
    if config.loss == "auto":
        if dataset.loss is None:
            raise ConfigError(
                f"scenario.loss: the targets of {dataset.name} are numbers and call for a loss of your own, "
                f"give it as {FORM}"
            )
        return dataset.loss
    if is_own_loss(config.loss):
        return load_loss(config.loss)
    if config.loss == "cross-entropy" and dataset.loss == "binary-cross-entropy":
        raise ConfigError(
            f"scenario.loss: {dataset.name} has several labels per picture, which cross-entropy cannot learn; "
            "take binary-cross-entropy, or leave it out"
        )
    return cast(Loss, config.loss)


def name_of(config: ScenarioConfig) -> str:
    """Data, model, pictures per client, an optimizer other than SGD and, if more than one, local steps or epochs and
    clients in a sum: `photos-lenet-b1`.

    Random numbers of a scenario are drawn by its name, so another seed of the attacks is another name.
    """
    parts = [Path(config.data).name, Path(config.model).name, f"b{config.batch_size}"]
    if config.optimizer != "sgd":
        parts.append(config.optimizer)
    if config.epochs:
        parts.append(f"e{config.epochs}")
    if config.local_steps > 1:
        parts.append(f"t{config.local_steps}")
    if config.aggregate > 1:
        parts.append(f"k{config.aggregate}")
    if config.attack_seed:
        parts.append(f"s{config.attack_seed}")
    return slug("-".join(parts))


def model_of(config: ScenarioConfig, dataset: Dataset, defenses: Mapping[str, Defense] | None = None) -> nn.Module:
    """The model with its weights, as one of the defenses has changed it if they were trained so.

    One that the user brings is tried on a picture first.
    """
    classes, shape = dataset.targets.shape[1], dataset.shape
    if is_user_model(config.model):
        model = load_model(config.model, classes=classes, shape=shape)
        try_model(model, dataset, config.model, config.loss)
    else:
        constants = {"mean": dataset.mean, "std": dataset.std} if config.normalize == AUTO else {}
        model = MODELS[config.model](classes=classes, shape=shape, seed=config.model_seed, **constants)
    normalize_as(model, config.normalize, shape[0])
    if config.weights:
        return load_checkpoint(model, Path(config.weights), defenses or {})
    return model


def try_model(model: nn.Module, dataset: Dataset, spec: str, loss: str = "auto") -> None:
    """One picture through the model: lazy layers get their weights, and what cannot work is said before the run.

    loss: as a config names it. What the outputs are is the business of a loss of the client's own.
    """
    expected = (1, *dataset.targets.shape[1:])
    try:
        with torch.no_grad(), weights_from(0):
            logits = model.eval()(dataset.images[:1])
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{spec}: cannot take a picture of {dataset.shape}, {type(error).__name__}: {reason}"
        ) from error
    if not is_own_loss(loss) and (not isinstance(logits, Tensor) or tuple(logits.shape) != expected):
        got = f"a tensor of {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise ConfigError(f"{spec}: gives {got} for one picture, expected logits of {expected}")
