"""`gradveil train-gan`: the generator that ROGS searches in, trained on public pictures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradveil.cli._help import DATA_OPTION, DEVICE, DEVICE_FORM, PAIR_FORM, PICTURES, QUIET
from gradveil.cli._networks import check_file, print_now_and_then, read_source, resumable
from gradveil.cli.audit import option

if TYPE_CHECKING:
    from gradveil.generators.conditional_training import Reached
    from gradveil.generators.gan_course import GanCourse
    from gradveil.generators.pictures import Source

WHAT, LEARN = option("What it is trained on"), option("How it is trained")
HOW, OUT = option("How it is computed"), option("What comes out")
DATA = f"Public pictures with one class each: {PICTURES}."
AVOID = "Pictures to be attacked: pictures that look like one of them are not trained on; repeatable."


def train_gan(
    data: Annotated[str, WHAT(DATA, metavar="DATA[:k=v,...]")],
    out: Annotated[
        Path,
        OUT(
            "File to write the weights to, with their provenance. Sample pictures go to FILE.png.",
            metavar="FILE.safetensors",
        ),
    ],
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    avoid: Annotated[list[str] | None, WHAT(AVOID, metavar="DATA[:k=v,...]")] = None,
    size: Annotated[int, WHAT("Side of the pictures in pixels: 8, 16, 32, 64 or 128 (default: that of the data).")] = 0,
    steps: Annotated[int, LEARN("Steps of the generator (default 20,000).")] = 20_000,
    seconds: Annotated[
        float | None,
        LEARN(
            "End the training after this many seconds; the learning rates have fallen by then (default: no limit).",
            metavar="SECONDS",
        ),
    ] = None,
    batch_size: Annotated[int, LEARN("Pictures in a step (default 128).")] = 128,
    critic_steps: Annotated[int, LEARN("Steps of the critic per step of the generator (default 2).")] = 2,
    rate: Annotated[float, LEARN("Learning rate of the generator (default 2e-4).")] = 2e-4,
    critic_rate: Annotated[float, LEARN("Learning rate of the critic (default 4e-4).")] = 4e-4,
    width: Annotated[
        int, LEARN("Channels of the generator's first level; the last level has half (default 256).")
    ] = 256,
    critic_width: Annotated[int, LEARN("Channels of the critic (default 128).")] = 128,
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
    graphs: Annotated[
        bool, HOW("On a GPU, run each step as one CUDA graph, which is faster (default: yes).", "--graphs/--no-graphs")
    ] = True,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Train a class-conditional GAN for the attack `rogs`. Run the same command again to resume.

    [bold]Examples[/bold]

    gradveil train-gan --data public/ --size 32 --out gan.safetensors

    gradveil train-gan --data cifar100:root=data --avoid cifar100:root=data,split=test,limit=1000
    --seconds 200 --device cuda --precision bf16 --out gan.safetensors
    """
    from gradveil.cli._options import check_training, compute_of
    from gradveil.core.errors import unknown
    from gradveil.generators.gan_course import GanCourse
    from gradveil.generators.labeled_pictures import labeled_pictures
    from gradveil.generators.learn_gan import Widths, train_conditional_gan

    if precision not in ("bf16", "float32"):
        raise unknown("precision", precision, ("bf16", "float32"))
    low = {"--steps": (steps, 1), "--critic-steps": (critic_steps, 1), "--batch-size": (batch_size, 2)}
    low |= {"--size": (size, 0), "--width": (width, 2), "--critic-width": (critic_width, 1), "--seed": (seed, 0)}
    check_training(low, {"--seconds": seconds, "--rate": rate, "--critic-rate": critic_rate})
    check_file(out)
    compute = compute_of(device, "float32", "auto", None)
    course = GanCourse(
        steps=steps,
        seconds=seconds,
        batch_size=batch_size,
        critic_steps=critic_steps,
        rate=rate,
        critic_rate=critic_rate,
        seed=seed,
        bf16=precision == "bf16",
        graphs=graphs,
        device=compute.device,
    )
    widths = Widths(generator=width, critic=critic_width)
    avoided = tuple(source_of(text, (), "avoid") for text in avoid or ())
    pictures = labeled_pictures(
        source_of(data, data_option or (), "data"), avoid=avoided, size=size, device=compute.device
    )
    if not quiet:
        counts = f"{len(pictures.images)} pictures of {pictures.name}, {pictures.alike} left out as alike"
        print(counts, file=sys.stderr)
    with compute.active(), resumable(out):
        reached = train_conditional_gan(pictures, out, widths=widths, course=course, on_block=printer(course, quiet))
    if not quiet:
        typer.echo(f"{reached.step} steps in {reached.seconds:.0f} s; {out.with_suffix('.png')} shows samples")
        typer.echo(f"use it as rogs:generator={out}")


def source_of(text: str, shared: Sequence[str], key: str) -> Source:
    """A data set with its options over the shared ones, all of them checked."""
    from gradveil.config.resolve import check_data_options
    from gradveil.core.choice import parse_pairs
    from gradveil.generators.pictures import Source

    name, options = read_source(text, key)
    given = {**parse_pairs(list(shared), "data_options"), **options}

    def where(at: str) -> str:
        """What is wrong with a data set beside `data` is no fault of `data_options`."""
        return key if at == "data" else at if key == "data" else at.replace("data_options", key, 1)

    return Source(data=name, options=check_data_options(name, given, where))


def printer(course: GanCourse, quiet: bool) -> Callable[[Reached], None] | None:
    """A line for a block of steps."""
    print_line = print_now_and_then(quiet)
    if print_line is None:
        return None

    def on_block(reached: Reached) -> None:
        limit = "" if course.seconds is None else f" of {course.seconds:g}"
        losses = f"critic {reached.critic_loss:.3f}, generator {reached.generator_loss:.3f}"
        where = f"step {reached.step} of {course.steps}, {reached.seconds:.0f}{limit} s"
        print_line(f"{where}, {losses}", reached.seconds, reached.step == course.steps)

    return on_block
