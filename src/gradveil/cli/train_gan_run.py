"""Train a GAN, say how far it is, and show what it draws."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import typer

from gradveil.cli.options import compute_of
from gradveil.cli.protect_run import check_file
from gradveil.cli.train_generator_run import told_what_is_kept
from gradveil.config.resolve import resolve
from gradveil.config.schema import AuditConfig, ScenarioConfig
from gradveil.core.choice import Choice, parse_choice, parse_pairs
from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.core.provenance import own_version
from gradveil.core.seeds import Seed
from gradveil.generators.conditional import FIRST, ConditionalGan
from gradveil.generators.conditional_training import Reached, train_gan
from gradveil.generators.critic import Critic
from gradveil.generators.gan_course import GanCourse
from gradveil.generators.gan_step import Duel
from gradveil.generators.labeled_pictures import Labeled, labeled_pictures
from gradveil.generators.pictures import Source
from gradveil.generators.provenance import record_of
from gradveil.generators.sheet import samples_sheet
from gradveil.generators.stored import store_network
from gradveil.models.start import weights_from

KIND = "conditional-gan"
CLASSES_SHOWN, EACH = 12, 12
WIDEST = 4096


@dataclass(frozen=True, kw_only=True)
class Networks:
    """How large they are."""

    size: int = 0
    width: int = 256
    critic_width: int = 128

    def __post_init__(self) -> None:
        if self.size < 0 or not 2 <= self.width <= WIDEST or not 1 <= self.critic_width <= WIDEST:
            raise ConfigError(f"train-gan: size, width or critic-width out of range, widths go from 2 to {WIDEST}")

    def architecture(self, pictures: Labeled) -> dict[str, int]:
        channels, side = pictures.images.shape[1:3]
        blocks = (side // FIRST).bit_length() - 1
        shape = {"classes": pictures.labels.shape[1], "channels": channels}
        return {**shape, "width": self.width, "blocks": blocks, "full": blocks, "noise": 128, "embedding": 128}


def train_and_tell(
    data: str,
    data_options: Sequence[str],
    avoid: Sequence[str],
    networks: Networks,
    course: GanCourse,
    out: Path,
    device: str,
    quiet: bool,
) -> None:
    """Nothing is written before the options are checked; checkpoints go to FILE.resume."""
    check_file(out)
    compute = compute_of(device, "float32", "auto", None)
    course = replace(course, device=compute.device)
    source, others = source_of(data, data_options), tuple(source_of(text, option="--avoid") for text in avoid)
    pictures = labeled_pictures(source, avoid=others, size=networks.size, device=compute.device)
    if not quiet:
        print(
            f"{len(pictures.images)} pictures of {pictures.name}, {pictures.alike} left out as alike", file=sys.stderr
        )
    with compute.active(), told_what_is_kept(out):
        reached = trained(pictures, networks, course, out, None if quiet else teller(course))
    if not quiet:
        typer.echo(f"{reached.step} steps in {reached.seconds:.0f} s; {out.with_suffix('.png')} shows samples")
        typer.echo(f"use it as rogs:generator={out}")


def source_of(text: str, shared: Sequence[str] = (), option: str = "--data") -> Source:
    """A data set with the options that were given, checked; a path that is there may have a colon in it."""
    choice = Choice(name=text) if Path(text).exists() else parse_choice(text, option)
    given = {**parse_pairs(list(shared), "--data-option"), **choice.options}
    config = AuditConfig(scenario=ScenarioConfig(data=choice.name, data_options=given))
    names = {"scenario.data_options.": f"{option}: ", "scenario.data_options": option, "scenario.data": option}
    checked = resolve(config, lambda key: next((key.replace(k, to) for k, to in names.items() if k in key), key))
    return Source(data=choice.name, options={key: checked.scenario.data_options[key] for key in given})


def trained(
    pictures: Labeled, networks: Networks, course: GanCourse, out: Path, told: Callable[[Reached], None] | None = None
) -> Reached:
    """Train, store at `out` with a sheet of samples beside. Goes on if it was interrupted."""
    architecture, resume = networks.architecture(pictures), Path(f"{out}.resume")
    with weights_from(Seed(course.seed).at(KIND).number()):
        generator = ConditionalGan(**architecture)
        critic = Critic(classes=architecture["classes"], size=generator.size, width=networks.critic_width)
    duel = Duel(generator, critic, pictures.images, pictures.labels, course)
    identity = {"kind": KIND, **architecture, "critic_width": networks.critic_width, **pictures.told()}
    reached = train_gan(duel, resume=resume, identity=identity, on_block=told)
    average = duel.settled()
    spent = {"steps": reached.step, "seconds_spent": f"{reached.seconds:.1f}"}
    versions = {"version": own_version(), "torch": torch.__version__}
    told_of = {**pictures.told(), **course.settings(), "steps_planned": course.steps, **spent, **versions}
    store_network(out, KIND, average, architecture, told_of, record_of(pictures.images))
    write_whole(out.with_suffix(".png"), samples_sheet(samples(average, course.seed), EACH))
    resume.unlink(missing_ok=True)
    return reached


@torch.no_grad()
def samples(generator: ConditionalGan, seed: int) -> torch.Tensor:
    """Classes from first to last, a row each."""
    places = torch.linspace(0, generator.classes - 1, min(CLASSES_SHOWN, generator.classes)).round().long()
    labels = torch.eye(generator.classes)[places].repeat_interleave(EACH, 0)
    noise = torch.randn(len(labels), generator.noise, generator=Seed(seed).at("samples").rng())
    return generator(torch.cat([noise, generator.embed(labels)], 1))


def teller(course: GanCourse) -> Callable[[Reached], None]:
    """A line a block, at most one in two seconds."""
    last = [-float("inf")]

    def told(reached: Reached) -> None:
        if reached.seconds - last[0] >= 2 or reached.step == course.steps:
            last[0] = reached.seconds
            limit = "" if course.seconds is None else f" of {course.seconds:g}"
            losses = f"critic {reached.critic_loss:.3f}, generator {reached.generator_loss:.3f}"
            where = f"step {reached.step} of {course.steps}, {reached.seconds:.0f}{limit} s"
            print(f"{where}, {losses}", file=sys.stderr, flush=True)

    return told
