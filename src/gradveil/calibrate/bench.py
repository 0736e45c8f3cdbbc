"""What a calibration measures on: clients, the pictures among which theirs are sought, and who stands in for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradveil import data
from gradveil.audit.schedule import place
from gradveil.audit.split import Split, split_dataset
from gradveil.calibrate.family import KEY, Family
from gradveil.config.build import loss_for, scenario_of
from gradveil.config.schema import AuditConfig
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.lineup.candidates import Gallery, without_copies_of
from gradveil.lineup.client import Place, places_of

STANDINS = 64
SHOWN = 5  # pictures, by the limit: enough that one of them may be named
RIVALS = 10  # candidates, by the limit


@dataclass(frozen=True, kw_only=True)
class Group:
    """Places whose pictures carry one label, so that they share what candidates make. The first has the stand-ins."""

    name: str
    places: tuple[Place, ...]
    standins: tuple[int, ...]  # rows of the gallery

    @property
    def pictures(self) -> int:
        return len(self.places) + len(self.standins)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Clients and candidates. One picture of each client is asked about: those of one client share its noise."""

    scenario: Scenario
    gallery: Gallery
    groups: tuple[Group, ...]
    seed: Seed

    @property
    def candidates(self) -> int:
        return len(self.gallery.images) + 1

    @property
    def pictures(self) -> int:
        return sum(group.pictures for group in self.groups)


def load_scenario(config: AuditConfig) -> tuple[Scenario, Split]:
    """The clients of an audit, and the parts of the data."""
    asked = config.scenario
    dataset = data.load(asked.data, **asked.data_options)
    asked = replace(asked, loss=loss_for(asked, dataset))
    parts = split_dataset(dataset, asked.images, asked.batch_size, config.gallery, config.seed, asked.draw)
    return scenario_of(asked, dataset, parts, {}), parts


def load_bench(
    config: AuditConfig, standins: int | None, compute: Compute = Compute(), candidates: int | None = None
) -> Bench:
    """Of an audit's clients, with so many stand-ins for each class among them; None: many.

    candidates: how many are asked for, the true one included; None: as many as the gallery allows
    """
    scenario, parts = load_scenario(config)
    if parts.gallery is None or parts.gallery_labels is None:
        raise ConfigError("no picture is left to stand in the line-up, use fewer", key="images")
    check_candidates(candidates, len(parts.gallery))
    gallery = Gallery(images=parts.gallery, labels=parts.gallery_labels)
    return make_bench(
        place(scenario, compute), gallery, STANDINS if standins is None else standins, Seed(config.seed).at("calibrate")
    )


def check_candidates(asked: int | None, others: int) -> None:
    """ConfigError if the data has not so many."""
    if asked is not None and asked > others + 1:
        raise ConfigError(
            f"must be at most {others + 1} (the original and the {others} other pictures of the data), got {asked}; "
            "ask for fewer, or give more data",
            key="lineup",
        )


def make_bench(scenario: Scenario, gallery: Gallery, standins: int, seed: Seed) -> Bench:
    """Candidates that are a client's own picture are left out."""
    rows = without_copies_of(scenario.private.images.flatten(0, -4), gallery.images)
    assert gallery.labels is not None
    among = Gallery(images=gallery.images[rows].to(scenario.private.images), labels=gallery.labels[rows])
    return Bench(scenario=scenario, gallery=among, groups=_groups(scenario, among, standins, seed), seed=seed)


def shrink(bench: Bench, limit: float) -> Bench:
    """As few candidates and stand-ins as can show the limit, for what takes a line-up at every strength."""
    size = min(len(bench.gallery.images), math.ceil(RIVALS / limit))
    assert bench.gallery.labels is not None
    gallery = Gallery(images=bench.gallery.images[:size], labels=bench.gallery.labels[:size])
    standins = math.ceil(SHOWN / limit / len(bench.groups))
    return replace(bench, gallery=gallery, groups=_groups(bench.scenario, gallery, standins, bench.seed))


def _groups(scenario: Scenario, gallery: Gallery, standins: int, seed: Seed) -> tuple[Group, ...]:
    by_label: dict[bytes, list[Place]] = {}
    for client in range(len(scenario.names)):
        first = places_of(scenario, client)[0]
        by_label.setdefault(first.label.double().cpu().numpy().tobytes(), []).append(first)
    each = enumerate(by_label.values())
    return tuple(Group(name=f"label-{n}", places=tuple(own), standins=_draw(gallery, own, standins, seed.at(n)))
                 for n, own in each)  # fmt: skip


def _draw(gallery: Gallery, places: Sequence[Place], count: int, seed: Seed) -> tuple[int, ...]:
    rows = gallery.of_class(places[0].label)
    order = torch.randperm(len(rows), generator=seed.at("stand-ins").rng()).tolist()
    return tuple(rows[at] for at in order[:count])


def fit_ladder(family: Family, scenario: Scenario) -> tuple[Any, ...]:
    """The values at which the defense can act on these clients; ConfigError if it cannot at any."""
    fits: list[Any] = []
    failed: ConfigError | None = None
    for value in family.ladder:
        try:
            check_defense(family.build(value), scenario)
        except ConfigError as error:
            failed = failed or error
        else:
            fits.append(value)
    if not fits and failed is not None:
        raise ConfigError(failed.message, key=KEY) from failed
    return tuple(fits)


def check_defense(defense: Defense, scenario: Scenario) -> None:
    defense.bind(scenario).check(in_client_mode(scenario.model, scenario.training))
