"""`gradveil train-generator`: the networks that ROG's attacker prepares on public pictures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from gradveil.cli._help import DEVICE, DEVICE_FORM, PAIR_FORM, PICTURES, QUIET
from gradveil.cli._networks import check_file, print_now_and_then, read_source, resumable
from gradveil.cli.audit import option
from gradveil.core.errors import ConfigError

if TYPE_CHECKING:
    from gradveil.generators.pictures import Source
    from gradveil.generators.training import Course, Progress

USE = {"autoencoder": "space=autoencoder,weights=", "enhancer": "finish=enhance,enhancer="}

WHAT, LEARN = option("What it is trained on"), option("How it is trained")
HOW, OUT = option("How it is computed"), option("What comes out")
DATA = f"Public pictures: {PICTURES}, each with options of its own; repeatable."


def train_generator(
    kind: Annotated[str, typer.Argument(metavar="autoencoder|enhancer", help="Network to train.", show_default=False)],
    data: Annotated[list[str], WHAT(DATA, metavar="DATA[:k=v,...]")],
    out: Annotated[Path, OUT("File to write the weights to, with their provenance.", metavar="FILE.safetensors")],
    data_option: Annotated[
        list[str] | None,
        WHAT("One option for every data set that has it, such as root=DIR; repeatable.", metavar=PAIR_FORM),
    ] = None,
    skip: Annotated[
        int,
        WHAT(
            "Leave out the N pictures of each data set that `gradveil audit` attacks, and pictures "
            "that look like them. A data set's own skip=N overrides it (default 0)."
        ),
    ] = 0,
    audit_seed: Annotated[int, WHAT("--seed of that audit; it decides which pictures are attacked (default 0).")] = 0,
    audit_draw: Annotated[str, WHAT("--draw of that audit (default seed).", metavar="seed|first")] = "seed",
    size: Annotated[int, WHAT("Side in pixels that all pictures are resized to (default 128).")] = 128,
    channels: Annotated[int, WHAT("Color channels: 3 for color, 1 for gray (default 3).")] = 3,
    latent: Annotated[int, LEARN("autoencoder: numbers in a code (default 2048).")] = 2048,
    noise: Annotated[
        float | None,
        LEARN("enhancer: largest standard deviation of the noise added to pictures in [0, 1] (default 0.1)."),
    ] = None,
    adversarial: Annotated[float | None, LEARN("enhancer: weight of the discriminator's loss (default 0.005).")] = None,
    width: Annotated[int | None, LEARN("Channels of the outermost level (default 64; enhancer 48).")] = None,
    epochs: Annotated[int, LEARN("Passes over the pictures (default 200).")] = 200,
    seconds: Annotated[
        float | None,
        LEARN(
            "End the training after this many seconds; the learning rate has fallen by then (default: no limit).",
            metavar="SECONDS",
        ),
    ] = None,
    batch_size: Annotated[int, LEARN("Pictures in a step (default 32).")] = 32,
    rate: Annotated[float | None, LEARN("Highest learning rate (default 6e-4; enhancer 4e-4).")] = None,
    seed: Annotated[
        int, LEARN("Random seed; the same seed gives the same weights, except with --seconds (default 0).")
    ] = 0,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of the training; bf16 is faster on a GPU and less exact (default float32).",
            metavar="bf16|float32",
        ),
    ] = "float32",
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Train an autoencoder or an enhancer for the attack `rog`. Run the same command again to resume.

    [bold]Examples[/bold]

    gradveil train-generator autoencoder --data public/ --latent 2048 --out autoencoder.safetensors

    gradveil train-generator enhancer --data pictures.zip:label=name,skip=64 --data utkface:root=faces.zip
    --seconds 120 --device cuda --precision bf16 --out enhancer.safetensors
    """
    from gradveil.cli._options import check_training, compute_of
    from gradveil.core.errors import unknown
    from gradveil.data.draw import Draw
    from gradveil.generators.learn_autoencoder import train_autoencoder
    from gradveil.generators.learn_enhancer import ADVERSARIAL, NOISE, RATE, Task, train_enhancer
    from gradveil.generators.pictures import public_pictures
    from gradveil.generators.training import Course

    low = {"--epochs": (epochs, 1), "--batch-size": (batch_size, 1), "--width": (width, 1), "--seed": (seed, 0)}
    low |= {"--size": (size, 8), "--skip": (skip, 0), "--audit-seed": (audit_seed, 0)}
    check_training(low, {"--seconds": seconds, "--rate": rate})
    check_file(out)
    if kind not in USE:
        raise unknown("generator", kind, USE, where="train-generator")
    if precision not in ("bf16", "float32"):
        raise unknown("precision", precision, ("bf16", "float32"))
    if channels not in (1, 3):
        raise ConfigError(f"must be 1 (gray) or 3 (color), got {channels}", key="channels")
    enhances = kind == "enhancer"
    if not enhances:
        check_autoencoder(latent, size, noise, adversarial)
    compute = compute_of(device, "float32", "auto", None)
    rate = (RATE if enhances else Course().rate) if rate is None else rate
    more: Any = {"epochs": epochs, "seconds": seconds, "batch_size": batch_size, "seed": seed}
    course = Course(**more, rate=rate, device=compute.device, bf16=precision == "bf16")
    task = Task(
        noise=NOISE if noise is None else noise, adversarial=ADVERSARIAL if adversarial is None else adversarial
    )
    if audit_draw not in get_args(Draw):
        raise unknown("draw", audit_draw, get_args(Draw), where="--audit-draw")
    attacked: Any = {"seed": audit_seed, "draw": audit_draw}
    sources = [replace(source, **attacked) for source in sources_of(data, data_option or [], skip)]
    pictures = public_pictures(sources, size=size, channels=channels, skip=skip, seed=seed)
    if not quiet:
        counts = f"{len(pictures.train)} pictures of {pictures.name}, {len(pictures.held)} held out"
        print(f"{counts}, {pictures.skipped} skipped, {pictures.alike} left out as copies", file=sys.stderr)
    wide: Any = {} if width is None else {"width": width}
    wide |= {"course": course, "on_epoch": printer(course, quiet)}
    with compute.active(), resumable(out):
        if enhances:
            figures = train_enhancer(pictures, out, task=task, **wide)
        else:
            figures = train_autoencoder(pictures, out, latent=latent, **wide)
    if not quiet:
        typer.echo(f"{len(pictures.held)} held-out pictures, {figures}")
        typer.echo(f"use it as {USE[kind]}{out}")


def check_autoencoder(latent: int, size: int, noise: float | None, adversarial: float | None) -> None:
    from gradveil.generators.autoencoder import side_of

    side_of(latent, size)
    for key, value in (("noise", noise), ("adversarial", adversarial)):
        if value is not None:
            raise ConfigError("belongs to an enhancer, leave it out", key=key)


def sources_of(data: Sequence[str], data_options: Sequence[str], skip: int) -> list[Source]:
    """The data sets, each with its own options over the shared ones that it knows."""
    from gradveil.core.choice import parse_pairs
    from gradveil.core.errors import unknown
    from gradveil.defenses.loda.starts import options_for

    shared = parse_pairs(list(data_options), "data_options")
    sources = [source_of(text, skip, shared) for text in data]
    known = {name for one in sources for name in options_for(one.data)}
    for name in shared:
        if name not in known:
            raise unknown("option", name, known, where="data_options")
    return sources


def source_of(text: str, skip: int, shared: Mapping[str, Any]) -> Source:
    """Checked, and without the defaults: size and split are set by the training."""
    from gradveil.config.resolve import check_data_options
    from gradveil.defenses.loda.starts import options_for
    from gradveil.generators.pictures import Source

    name, options = read_source(text)
    check_data_options(name, {})
    count = options.pop("skip", skip)
    if type(count) is not int or count < 0:
        raise ConfigError(f"{name}: skip must be a whole number of 0 or more, got {count!r}", key="data")
    given = {key: value for key, value in shared.items() if key in options_for(name)} | options
    return Source(data=name, options=check_data_options(name, given), skip=count)


def printer(course: Course, quiet: bool) -> Callable[[Progress], None] | None:
    """A line for an epoch."""
    print_line = print_now_and_then(quiet)
    if print_line is None:
        return None

    def on_epoch(progress: Progress) -> None:
        limit = "" if course.seconds is None else f" of {course.seconds:g}"
        where = f"epoch {progress.epoch} of {course.epochs}, {progress.seconds:.0f}{limit} s"
        print_line(f"{where}, loss {progress.loss:.4f}", progress.seconds, progress.epoch == course.epochs)

    return on_epoch
