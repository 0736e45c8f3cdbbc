"""An inverter in limited time: simulate on the device for a share of it, then train until it is over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.core.defense import Defense
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.generators.inverter import Inverter
from gradveil.generators.learn_inverter import Lesson, architecture_of, fit, network_for, simulation_of, store_inverter
from gradveil.generators.pictures import move_and_mirror
from gradveil.generators.simulate import Simulated, Simulation
from gradveil.generators.sketch import Sketch
from gradveil.generators.training import Course

MOST_EPOCHS = 60  # of a training that has time: more only learns the pictures by heart


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A trained network, and how it came about."""

    network: Inverter
    simulation: Simulation
    lesson: Lesson
    pool: Batch
    facts: dict[str, Any]

    def features_of(self, clients: Batch, seed: Seed) -> Simulated:
        parts = [self.simulation.simulate(part, seed.at(k)) for k, part in enumerate(split(clients, 256))]
        return join(parts)

    def store(self, file: Path, half: bool = False) -> None:
        network = self.network
        if half:
            network = Inverter(**architecture_of(network.mean.numel(), self.simulation, self.lesson))
            network.load_state_dict(self.network.state_dict())
            network = network.half()
        store_inverter(file, network, self.simulation, self.lesson, asdict(self.lesson) | self.facts, self.pool.images)


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Simulated updates of public pictures, in sketches of several widths; of which copy and pool each is."""

    simulation: Simulation
    features: dict[int, Tensor]  # by the width of the sketch
    labels: Tensor
    pictures: Tensor
    copy: Tensor
    is_test: Tensor
    seconds: float

    def pick(self, pool: str, copies: int, width: int) -> tuple[Simulation, Simulated]:
        keep = self.copy < copies
        if pool != "both":
            keep &= self.is_test if pool == "test" else ~self.is_test
        rows = keep.nonzero().flatten()
        simulation = replace(self.simulation, sketch=Sketch(width))
        return simulation, Simulated(self.features[width][rows], self.labels[rows], self.pictures[rows])


@dataclass(frozen=True, kw_only=True)
class Means:
    """What there is to compute with."""

    device: str
    together: int
    batch_size: int

    def wait(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()


def simulate(
    scenario: Scenario,
    defense: Defense,
    public: Mapping[str, Batch],
    *,
    copies: int,
    widths: Sequence[int],
    seconds: float,
    means: Means,
) -> Bank:
    """Copy after copy, until all are there or the time is over."""
    start = time.monotonic()
    simulation = simulation_of(scenario, defense, Lesson(sketch=widths[0]), means.device)
    sketches = {width: Sketch(width) for width in widths}
    features: dict[int, list[Tensor]] = {width: [] for width in widths}
    rest: list[tuple[Tensor, ...]] = []
    for copy, is_test, clients, seed in clients_of(public, copies, means.together):
        fed = Batch(clients.images.to(simulation.like) / 255, clients.labels.to(simulation.like))
        with torch.no_grad():
            update = simulation.updates(fed, seed)
            for width, sketch in sketches.items():
                features[width].append(sketch(update).nan_to_num(0, 0, 0).half())
        rest.append((fed.labels, clients.images, torch.full_like(is_test, copy, dtype=torch.long), is_test))
        means.wait()
        if time.monotonic() - start > seconds:
            break
    labels, pictures, of_copy, of_test = (torch.cat(x) for x in zip(*rest, strict=True))
    whole = {width: torch.cat(parts) for width, parts in features.items()}
    return Bank(
        simulation=simulation, features=whole, labels=labels, pictures=pictures, copy=of_copy, is_test=of_test,
        seconds=time.monotonic() - start,
    )  # fmt: skip


def learn(bank: Bank, pool: str, lesson: Lesson, pictures: Batch, *, seconds: float, means: Means) -> Learned:
    """Train until the time is over."""
    simulation, simulated = bank.pick(pool, lesson.copies, lesson.sketch)
    course = Course(
        epochs=MOST_EPOCHS, seconds=max(seconds, 1.0), batch_size=means.batch_size, rate=1e-3, device=means.device,
        bf16=means.device.startswith("cuda"),
    )  # fmt: skip
    network = network_for(simulated, simulation, lesson, course)
    end = fit(network, simulated, course, lesson)
    means.wait()
    facts = {
        "public": len(pictures.images), "simulated": len(simulated.features), "features": simulated.features.shape[1],
        "at_once": simulation.at_once, "bank": len(bank.labels), "bank_in": round(bank.seconds, 2),
        "trained_in": round(end.seconds, 2), "epochs": end.epoch, "steps": end.steps, "loss": round(end.loss, 5),
        "parameters": sum(p.numel() for p in network.parameters()),
    }  # fmt: skip
    return Learned(network=network.eval(), simulation=simulation, lesson=lesson, pool=pictures, facts=facts)


def clients_of(public: Mapping[str, Batch], copies: int, together: int) -> Iterator[tuple[int, Tensor, Batch, Seed]]:
    """One picture each: as it is, mirrored, then moved and mirrored; in a new order each time."""
    both, tests = public["both"], len(public["test"].images)
    is_test = torch.arange(len(both.images), device=both.images.device) >= len(both.images) - tests
    for copy in range(copies):
        stream, images = Seed(0).at("copy", copy), both.images
        if copy == 1:
            images = images.flip(-1)
        if copy > 1:
            images = move_and_mirror(images.cpu(), stream).to(images.device)
        order = torch.randperm(len(images), generator=stream.at("clients").rng()).to(images.device)
        clients = Batch(images[order].unsqueeze(1), both.labels[order].unsqueeze(1))
        for number, (part, tests_of) in enumerate(
            zip(split(clients, together), is_test[order].split(together), strict=True)
        ):
            yield copy, tests_of, part, stream.at("simulate", number)


def split(clients: Batch, size: int) -> Iterator[Batch]:
    yield from (Batch(*pair) for pair in zip(*(x.split(size) for x in clients), strict=True))


def join(parts: list[Simulated]) -> Simulated:
    return Simulated(*(torch.cat(x) for x in zip(*parts, strict=True)))
