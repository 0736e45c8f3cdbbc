"""A config with a capture to the audit of what was really sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradveil import data
from gradveil.attacks import ATTACKS
from gradveil.audit.audit import Audit
from gradveil.capture.format import Capture
from gradveil.capture.names import rename_for
from gradveil.capture.preflight import check_capture, model_of
from gradveil.capture.read import content_hash, load
from gradveil.capture.replay import Replay, replay
from gradveil.capture.scenario import captured_scenario, positive_control, with_replays
from gradveil.capture.truth import Found, find
from gradveil.config.load import to_tables
from gradveil.config.measure import metrics_of
from gradveil.config.normalization import normalize_as
from gradveil.config.schema import AuditConfig
from gradveil.core.check import options_of
from gradveil.core.choice import parse_choice
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.files import slug
from gradveil.core.hashes import hash_model
from gradveil.core.own_loss import OwnLoss, is_same_loss, load_loss
from gradveil.core.scenario import Scenario
from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.defenses import DEFENSES
from gradveil.metrics import METRICS, Metric
from gradveil.metrics.psnr import PSNR, psnr


@dataclass(frozen=True, kw_only=True)
class Case:
    """A capture that was looked at: its model, its clients by number of pictures, and what struck."""

    capture: Capture
    model: nn.Module
    groups: Mapping[int, tuple[str, ...]]  # pictures of each -> clients
    notes: tuple[str, ...]
    sha256: str  # of the file, whatever its weights are called in it


def build_captured(config: AuditConfig, dataset: Dataset | None = None, *, replays: bool = True) -> Audit:
    """Nothing is written. Clients with as many pictures make a scenario each, the fewest first."""
    case = open_case(config)
    dataset = _dataset(config, case.capture, dataset)
    found = None if dataset is None else find(case.capture, case.model, case.groups, dataset, config.scenario.pictures)
    if found is not None:
        config = replace(config, scenario=replace(config.scenario, pictures=found.rows))
    defenses = {label: DEFENSES[c.name](**c.options) for label, c in config.defense.items()}
    for defense in defenses.values():
        defense.check(case.model)  # before a round is played with it
    played = _replays(case, found, dataset, list(defenses.values())) if replays and found is not None else {}
    scenarios = [_scenario(case, config, n, clients, found, played) for n, clients in case.groups.items()]
    attacks = {label: ATTACKS[c.name](**c.options) for label, c in config.attack.items()}
    gallery, labels = (None, None) if found is None else (found.gallery, found.gallery_labels)
    return Audit(
        scenario=scenarios[0],
        also=tuple(scenarios[1:]),
        convergence=config.convergence and found is not None,
        sequence=config.sequence,
        declared=config.declared,
        tuned_on=config.tuned_on,
        defenses=defenses,
        attacks={label: attack for label, attack in attacks.items() if "mixture" not in attack.requires},
        metrics=_metrics(config, dataset, case.model, gallery),
        seed=config.seed,
        gallery=gallery,
        gallery_labels=labels,
        lineup=config.lineup,
        settings=to_tables(config),
        stand_in=positive_control(case.capture, case.model) if found is None else None,
        origin={"capture": _origin(case, played)},
    )


def open_case(config: AuditConfig) -> Case:
    """The capture, checked against its model."""
    path = Path(config.scenario.capture)
    capture = with_own_loss(load(path), config.scenario.loss)
    model = model_as_sent(capture, config)
    sha256 = content_hash(capture)  # of the file's names
    capture, renamed = rename_for(capture, model)
    notes = [*([renamed] if renamed else []), *check_capture(capture, model, path)]
    return Case(capture=capture, model=model, groups=group_clients(capture, config), notes=tuple(notes),
                sha256=sha256)  # fmt: skip


def with_own_loss(capture: Capture, loss: str) -> Capture:
    """With the function that the user gave under the name of the clients' loss."""
    if not isinstance(capture.training.loss, OwnLoss) or not is_same_loss(loss, capture.training.loss):
        return capture
    return replace(capture, training=replace(capture.training, loss=load_loss(loss)))


def model_as_sent(capture: Capture, config: AuditConfig) -> nn.Module:
    model = model_of(capture, config.scenario.model, Path(config.scenario.capture))
    return normalize_as(model, config.scenario.normalize, capture.shape[0])


def group_clients(capture: Capture, config: AuditConfig) -> dict[int, tuple[str, ...]]:
    """Clients by their number of pictures, the fewest first."""
    groups: dict[int, list[str]] = {}
    for client in list(capture.updates)[: config.scenario.images]:
        count = (capture.examples[client] or config.scenario.batch_size) * capture.aggregate
        groups.setdefault(count, []).append(client)
    return {count: tuple(groups[count]) for count in sorted(groups)}


def _dataset(config: AuditConfig, capture: Capture, dataset: Dataset | None) -> Dataset | None:
    if not config.scenario.data:
        if config.scenario.pictures:
            raise ConfigError("names rows of `data`, which is not given, add it", key="pictures")
        return None
    dataset = dataset or data.load(config.scenario.data, **config.scenario.data_options)
    answer = tuple(dataset.targets.shape[1:])
    if dataset.shape != capture.shape or answer != capture.answer.shape:
        got, expected = (_describe(*one) for one in ((dataset.shape, answer), (capture.shape, capture.answer.shape)))
        raise ConfigError(f"has {got}, the capture {expected}, give the clients' data", key="data")
    return dataset


def _describe(shape: tuple[int, ...], answer: tuple[int, ...]) -> str:
    return f"pictures of {shape} in {answer[0]} classes" if len(answer) == 1 else f"pictures of {shape}, masks {answer}"


def _replays(case: Case, found: Found, dataset: Dataset | None, defenses: Sequence[Defense]) -> dict[str, Replay]:
    stated = next((defense for defense in defenses if not defense.is_none), None)
    constants = None if dataset is None else (tuple(dataset.mean), tuple(dataset.std))
    more = {"defense": stated, "decoys": found.decoys, "constants": constants}
    return {client: replay(case.capture, case.model, client, batch, **more) for client, batch in found.batches.items()}


def _scenario(
    case: Case,
    config: AuditConfig,
    count: int,
    clients: Sequence[str],
    found: Found | None,
    replays: Mapping[str, Replay],
) -> Scenario:
    own = None if found is None else [found.batches[client] for client in clients]
    scenario = captured_scenario(
        case.capture,
        case.model,
        clients,
        name=slug(f"{Path(config.scenario.capture).stem}-b{count}"),
        examples=count,
        knows_labels=config.scenario.labels == "known",
        private=None if own is None else Batch(_stack([b.images for b in own]), _stack([b.labels for b in own])),
        public=None if found is None else found.public,
    )
    if found is None and scenario.threat.knows_labels and scenario.received and scenario.received.labels is None:
        raise ConfigError(
            "the capture has no labels and there is no `data` to read them from, set `labels = inferred`", key="labels"
        )
    return with_replays(scenario, [replays[client].status for client in clients] if replays else [])


def _stack(each: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(each))


def _metrics(
    config: AuditConfig, dataset: Dataset | None, model: nn.Module, gallery: Tensor | None
) -> tuple[Metric, ...]:
    """Where there is no gallery, what needs one is left out, and the verdict says that it was not measured."""
    if dataset is None:
        return (psnr(),)  # of a run without originals it scores nothing
    kept = [text for text in config.metrics if gallery is not None or not _needs_gallery(text)]
    return metrics_of(replace(config, metrics=tuple(kept) or (PSNR.name,)), dataset, model, gallery)


def _needs_gallery(text: str) -> bool:
    return bool({"gallery", "features"} & set(options_of(METRICS[parse_choice(text, "metrics").name])))


def _origin(case: Case, replays: Mapping[str, Replay]) -> dict[str, Any]:
    capture = case.capture
    return {
        "sha256": case.sha256,
        "sent_model_sha256": hash_model(case.model),
        "round": capture.round,
        "producer": capture.producer,
        "told_defense": capture.defense,
        "examples": dict(capture.examples),
        "notes": list(case.notes),
        "replay": {client: one.summary for client, one in replays.items()},
    }
