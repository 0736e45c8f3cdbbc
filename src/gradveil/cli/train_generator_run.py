"""Train a generator, say how far it is, and how well it does on pictures that it has not seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from gradveil.cli.options import check_training, compute_of
from gradveil.cli.protect_run import check_file
from gradveil.config.resolve import resolve
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.core.choice import parse_choice, parse_pairs
from gradveil.core.errors import ConfigError, DiskError, unknown
from gradveil.defenses.loda.starts import options_for
from gradveil.experiment.folder import BROKEN, FULL
from gradveil.generators.autoencoder import KIND as AUTOENCODER
from gradveil.generators.autoencoder import side_of
from gradveil.generators.enhancer import KIND as ENHANCER
from gradveil.generators.learn_autoencoder import train_autoencoder
from gradveil.generators.learn_enhancer import ADVERSARIAL, NOISE, RATE, Task, train_enhancer
from gradveil.generators.pictures import PublicPictures, Source, public_pictures
from gradveil.generators.quality import Figures
from gradveil.generators.training import Course, Progress

KINDS = (AUTOENCODER, ENHANCER)
USE = {AUTOENCODER: "space=autoencoder,weights=", ENHANCER: "finish=enhance,enhancer="}


@dataclass(frozen=True, kw_only=True)
class Order:
    """The options of the command; None is the default of the kind."""

    kind: str
    data: tuple[str, ...]
    data_options: tuple[str, ...] = ()
    skip: int = 0
    size: int = 128
    channels: int = 3
    latent: int = 2048
    noise: float | None = None
    adversarial: float | None = None
    width: int | None = None
    epochs: int = 200
    seconds: float | None = None
    batch_size: int = 32
    rate: float | None = None
    seed: int = 0

    def course(self, device: str, bf16: bool) -> Course:
        rate = (RATE if self.kind == ENHANCER else Course().rate) if self.rate is None else self.rate
        settings = {"epochs": self.epochs, "seconds": self.seconds, "batch_size": self.batch_size, "seed": self.seed}
        return Course(**settings, rate=rate, device=device, bf16=bf16)

    def task(self) -> Task:
        noise = NOISE if self.noise is None else self.noise
        return Task(noise=noise, adversarial=ADVERSARIAL if self.adversarial is None else self.adversarial)


def train_and_tell(order: Order, out: Path, device: str, precision: str, quiet: bool) -> None:
    """Nothing is written before the options are checked; checkpoints go to FILE.resume."""
    low = {"--epochs": (order.epochs, 1), "--batch-size": (order.batch_size, 1), "--width": (order.width, 1)}
    check_training(low | {"--seed": (order.seed, 0)}, {"--seconds": order.seconds, "--rate": order.rate})
    check_file(out)
    check_order(order, precision)
    compute = compute_of(device, "float32", "auto", None)
    course, task = order.course(compute.device, precision == "bf16"), order.task()
    pictures = public_pictures(
        sources_of(order), size=order.size, channels=order.channels, skip=order.skip, seed=order.seed
    )
    told = None if quiet else teller(course)
    if told is not None:
        counts = f"{len(pictures.train)} pictures of {pictures.name}, {len(pictures.held)} held out"
        print(f"{counts}, {pictures.skipped} skipped, {pictures.alike} left out as copies", file=sys.stderr)
    with compute.active(), told_what_is_kept(out):
        figures = _trained(order, pictures, out, course, task, told)
    if not quiet:
        typer.echo(f"{len(pictures.held)} held-out pictures, {figures}")
        typer.echo(f"use it as {USE[order.kind]}{out}")


def _trained(
    order: Order,
    pictures: PublicPictures,
    out: Path,
    course: Course,
    task: Task,
    told: Callable[[Progress], None] | None,
) -> Figures:
    wide: dict[str, Any] = {} if order.width is None else {"width": order.width}
    if order.kind == AUTOENCODER:
        return train_autoencoder(pictures, out, latent=order.latent, course=course, on_epoch=told, **wide)
    return train_enhancer(pictures, out, task=task, course=course, on_epoch=told, **wide)


def check_order(order: Order, precision: str) -> None:
    if order.kind not in KINDS:
        raise unknown("generator", order.kind, KINDS, where="train-generator")
    if precision not in ("bf16", "float32"):
        raise unknown("precision", precision, ("bf16", "float32"), where="--precision")
    if order.kind == AUTOENCODER:
        side_of(order.latent, order.size)
        if order.noise is not None or order.adversarial is not None:
            raise ConfigError("--noise, --adversarial: are of an enhancer alone, leave them out")
    for name, least in (("size", 8), ("skip", 0)):
        if getattr(order, name) < least:
            raise ConfigError(f"--{name}: {getattr(order, name)} is too few, give {least} or more")
    if order.channels not in (1, 3):
        raise ConfigError(f"--channels: {order.channels}, choose 1 (gray) or 3 (color)")


def sources_of(order: Order) -> list[Source]:
    """The data sets, each with its own options over those that are given to all."""
    shared = parse_pairs(list(order.data_options), "--data-option")
    sources = [_source(text, order.skip) for text in order.data]
    known = {option for one in sources for option in options_for(one.data)}
    for option in shared:
        if option not in known:
            raise unknown("option", option, known, where="--data-option")
    return [_with(one, {k: v for k, v in shared.items() if k in options_for(one.data)}) for one in sources]


def _source(text: str, skip: int) -> Source:
    """A path that is there may have a colon in it."""
    if Path(text).exists():
        return Source(data=text, skip=skip)
    choice = parse_choice(text, "--data")
    options = dict(choice.options)
    own = options.pop("skip", skip)
    if type(own) is not int or own < 0:
        raise ConfigError(f"--data: {choice.name}: skip is {own!r}, it must be a whole number of 0 or more")
    return Source(data=choice.name, options=options, skip=own)


def _with(source: Source, shared: dict[str, Any]) -> Source:
    """Checked, and without the defaults: size and split are ours."""
    given = {**shared, **source.options}
    config = ScenarioConfig(data=source.data, data_options=given)
    checked = resolve(AuditConfig(scenario=config), _asked_for).scenario.data_options
    return replace(source, options={name: checked[name] for name in given})


def _asked_for(key: str) -> str:
    return key.replace("scenario.data_options", "--data").replace("scenario.data", "--data")


def teller(course: Course) -> Callable[[Progress], None]:
    """A line an epoch, at most one in two seconds."""
    last = [-float("inf")]

    def told(progress: Progress) -> None:
        if progress.seconds - last[0] >= 2 or progress.epoch == course.epochs:
            last[0] = progress.seconds
            limit = "" if course.seconds is None else f" of {course.seconds:g}"
            where = f"epoch {progress.epoch} of {course.epochs}, {progress.seconds:.0f}{limit} s"
            print(f"{where}, loss {progress.loss:.4f}", file=sys.stderr, flush=True)

    return told


@contextmanager
def told_what_is_kept(out: Path) -> Iterator[None]:
    """An interruption keeps the last checkpoint, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        kept = Path(f"{out}.resume").exists()
        said = "the last checkpoint is kept, give the same command again" if kept else "nothing was saved yet"
        print(f"interrupted: {said}", file=sys.stderr)
        raise typer.Exit(130) from None
    except OSError as error:
        if error.errno not in FULL + BROKEN:
            raise
        raise DiskError(f"{out}: {error.strerror}, make room and give the same command again") from error
