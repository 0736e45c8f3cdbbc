"""Training an inverter: simulate updates of public pictures, keep their features, learn the pictures behind them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.generators.inverter import AT_ONCE, DECODERS, KIND, Inverter, draw_pictures, hold_back
from gradveil.generators.inverter_setting import ENTRY, Setting
from gradveil.generators.labeled_pictures import Labeled
from gradveil.generators.pictures import move_and_mirror
from gradveil.generators.provenance import record_of
from gradveil.generators.quality import Figures, figures_of
from gradveil.generators.shards import Shards
from gradveil.generators.simulate import TOGETHER, Simulated, Simulation
from gradveil.generators.sketch import Sketch
from gradveil.generators.stored import store_network
from gradveil.generators.training import Course, Progress, course_metadata, train
from gradveil.models.start import weights_from

HELD_OUT, MOST_HELD, FEWEST = 10, 256, 20  # one client in ten, at most 256, is kept for the figures
BETAS = (0.9, 0.99)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What is learned from what: the sketch, the copies of each picture, and the network."""

    sketch: int = 256
    copies: int = 2
    hidden: int = 1024
    depth: int = 2
    decoder: str = "perceptron"
    dropout: float = 0.1
    decay: float = 0.05

    def __post_init__(self) -> None:
        least = {"sketch": 8, "copies": 1, "hidden": 8, "depth": 1}
        for name, low in least.items():
            if not low <= getattr(self, name) <= 2**16:
                raise ConfigError(f"must be between {low} and {2**16}, got {getattr(self, name)}", key=name)
        if self.decoder not in DECODERS:
            raise ConfigError(f"must be {' or '.join(DECODERS)}, got {self.decoder!r}", key="decoder")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"must be 0 or more and below 1, got {self.dropout:g}", key="dropout")


LESSON, COURSE = Lesson(), Course(epochs=40, batch_size=128, rate=1e-3)


class Drawing:
    """Features to pictures, by squared error. Rows of what was simulated are learned from in any order."""

    def __init__(self, network: Inverter, simulated: Simulated, course: Course, lesson: Lesson) -> None:
        self.network, self.simulated, self.course = network, simulated, course
        network.drop.share, network.drop.rng = lesson.dropout, torch.Generator(course.device)
        fused = course.device.startswith("cuda")
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=course.rate, betas=BETAS, weight_decay=lesson.decay, fused=fused
        )
        self.networks: Mapping[str, nn.Module] = {"network": network}
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {"network": optimizer}

    def begin(self, pictures: int, seed: Seed) -> None:
        self.network.drop.rng.manual_seed(seed.at("dropout").number())

    def learn(self, images: Tensor, here: slice) -> Tensor:
        """`images` are rows of what was simulated."""
        features, labels, pictures = (x[images] for x in self.simulated)
        with self.course.autocast():
            got = self.network(features, labels)
        loss = F.mse_loss(got.float(), pictures.float() / 255)
        optimizer = self.optimizers["network"]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        optimizer.step()
        return loss.detach()


def train_inverter(
    scenario: Scenario,
    defense: Defense,
    public: Labeled,
    out: str | Path,
    *,
    lesson: Lesson = LESSON,
    course: Course = COURSE,
    on_simulated: Callable[[int, int], None] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> Figures:
    """Simulate, learn, store at `out`, and say how well pictures that were held out are drawn. Resumes if interrupted.

    Of the scenario it takes the model and the clients' training, and not their pictures. `on_simulated` hears how many
    of how many clients are done.
    """
    simulation = simulation_of(scenario, defense, lesson, course.device)
    setting = setting_of(simulation).to_json()
    identity = {"kind": KIND, ENTRY: setting, **asdict(lesson), **public.to_metadata(), "seed": course.seed}
    shards = Shards(Path(f"{out}.simulated"), identity)
    learned, held = split_public(public, simulation.examples, Seed(course.seed))
    plan = list(clients_to_play(learned, lesson.copies, simulation.examples, Seed(course.seed)))
    parts = play(simulation, [*plan, *chunks(held)], shards, Seed(course.seed), on_simulated)
    count = sum(len(one.images) for one in plan)
    simulated, others = gather(parts, count, course.device)
    network = network_for(simulated, simulation, lesson, course)
    resume = Path(f"{out}.resume")
    end = fit(network, simulated, course, lesson, resume=resume, identity=identity, on_epoch=on_epoch)
    hold_back(network.eval(), others.features, others.labels, others.pictures / 255)
    figures = judge(network, others)
    metadata = {**public.to_metadata(), **asdict(lesson), **course_metadata(course, end), **figures.to_metadata()}
    store_inverter(out, network, simulation, lesson, metadata, learned.images)
    resume.unlink(missing_ok=True)
    shards.remove()
    return figures


def store_inverter(
    out: str | Path,
    network: Inverter,
    simulation: Simulation,
    lesson: Lesson,
    metadata: Mapping[str, object],
    pictures: Tensor,
) -> None:
    """With what it applies to, and with the hashes and thumbnails of the pictures that it was trained on."""
    setting = {ENTRY: json.dumps(setting_of(simulation).to_json())}
    architecture = architecture_of(network.mean.numel(), simulation, lesson)
    store_network(out, KIND, network, architecture, {**setting, **metadata}, record_of(pictures))


def simulation_of(scenario: Scenario, defense: Defense, lesson: Lesson, device: str = "cpu") -> Simulation:
    """What the clients of this scenario would send, had they other pictures."""
    bound = defense.bind(scenario)
    channels, height, width = scenario.private.images.shape[-3:]
    return Simulation(
        model=copy.deepcopy(bound.model(scenario.model)).to(device),
        training=scenario.training,
        defense=bound,
        sketch=Sketch(lesson.sketch),
        examples=scenario.private.images.shape[1],
        shape=(channels, height, width),
        classes=scenario.classes,
    )


def setting_of(simulation: Simulation) -> Setting:
    return Setting.of(simulation.model, simulation.training, simulation.defense, simulation.examples, simulation.shape)


def split_public(public: Labeled, examples: int, seed: Seed) -> tuple[Batch, Batch]:
    """Pictures to learn from, and clients [client, example, ...] whose pictures are held out."""
    count = len(public.images)
    if count < FEWEST * examples:
        raise ConfigError(f"{public.name}: {count} public pictures are too few, give {FEWEST * examples} or more")
    order = torch.randperm(count, generator=seed.at("held-out").rng())
    clients = min(MOST_HELD, count // (HELD_OUT * examples))
    first, rest = order[: clients * examples], order[clients * examples :].sort().values
    held = Batch(*(x[first].unflatten(0, (clients, examples)) for x in (public.images, public.labels)))
    return Batch(public.images[rest], public.labels[rest]), held


def clients_to_play(learned: Batch, copies: int, examples: int, seed: Seed) -> Iterator[Batch]:
    """Every picture `copies` times: as it is, mirrored, then moved and mirrored; dealt out anew each time."""
    count = len(learned.images)
    for turn in range(copies):
        images, stream = learned.images, seed.at("copy", turn)
        if turn == 1:
            images = images.flip(-1)
        if turn > 1:
            images = move_and_mirror(images, stream)
        order = torch.randperm(count, generator=stream.at("clients").rng())[: count - count % examples]
        yield from chunks(Batch(*(x[order].unflatten(0, (-1, examples)) for x in (images, learned.labels))))


def chunks(clients: Batch) -> Iterator[Batch]:
    yield from (Batch(*pair) for pair in zip(*(x.split(TOGETHER) for x in clients), strict=True))


def play(
    simulation: Simulation,
    plan: list[Batch],
    shards: Shards,
    seed: Seed,
    on_simulated: Callable[[int, int], None] | None = None,
) -> Iterator[Simulated]:
    """Chunk after chunk; those that an interrupted run has stored are read."""
    done, total = 0, sum(len(one.images) for one in plan)
    for number, clients in enumerate(plan):
        found = shards.read(number)
        if found is None:
            here = Batch(*(x.to(simulation.like.device) for x in clients))
            found = simulation.simulate(here, seed.at("simulate", number))
            shards.write(number, found)
        yield found
        done += len(clients.images)
        if on_simulated is not None:
            on_simulated(done, total)


def gather(parts: Iterator[Simulated], count: int, device: str) -> tuple[Simulated, Simulated]:
    """The first `count` clients and the rest, each in one piece."""
    whole = Simulated(*(torch.cat(x) for x in zip(*(part.to(device) for part in parts), strict=True)))
    return Simulated(*(x[:count] for x in whole)), Simulated(*(x[count:] for x in whole))


def architecture_of(features: int, simulation: Simulation, lesson: Lesson) -> dict[str, int]:
    channels, height, width = simulation.shape
    return {
        "features": features, "sketch": lesson.sketch, "classes": simulation.classes,
        "channels": channels, "height": height, "width": width, "examples": simulation.examples,
        "hidden": lesson.hidden, "depth": lesson.depth, "decoder": DECODERS[lesson.decoder],
    }  # fmt: skip


def network_for(simulated: Simulated, simulation: Simulation, lesson: Lesson, course: Course) -> Inverter:
    with weights_from(Seed(course.seed).at(KIND).number()):
        network = Inverter(**architecture_of(simulated.features.shape[1], simulation, lesson))
    network.to(course.device)
    network.standardize(simulated.features, mean_picture(simulated.pictures))
    return network


def mean_picture(pictures: Tensor) -> Tensor:
    """Of pictures in 8 bits [client, example, ...], in [0, 1]; without a copy of them all in floats."""
    parts = [part.double().sum((0, 1)) for part in pictures.split(AT_ONCE)]
    return (torch.stack(parts).sum(0) / (255 * pictures.shape[0] * pictures.shape[1])).float()


def fit(
    network: Inverter,
    simulated: Simulated,
    course: Course,
    lesson: Lesson,
    *,
    resume: Path | None = None,
    identity: Mapping[str, object] | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> Progress:
    learner = Drawing(network.train(), simulated, course, lesson)
    rows = torch.arange(len(simulated.features)).view(-1, 1, 1, 1)
    return train(learner, rows, course, resume=resume, identity=identity, on_epoch=on_epoch, feed=shuffled_rows)


def shuffled_rows(rows: Tensor, size: int, seed: Seed) -> Iterator[tuple[slice, Tensor]]:
    """One epoch of row numbers; the last batch is left out if it is not full, unless it is all."""
    order = torch.randperm(len(rows), generator=seed.at("order").rng()).to(rows.device)
    size = min(size, len(rows))
    for first in range(0, len(rows) - size + 1, size):
        here = slice(first, first + size)
        yield here, order[here]


def judge(network: Inverter, held: Simulated) -> Figures:
    """Beside the mean picture."""
    truth = (held.pictures.float() / 255).flatten(0, 1).cpu()
    got = draw_pictures(network, held.features, held.labels).flatten(0, 1).cpu()
    blank = network.blank.cpu().expand_as(truth)
    return figures_of(truth, before=blank, after=got, of="blank, inverter")
