"""`gradveil train-inverter`: the network of the attack `learned-inverter`, for one audit and one defense."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradveil.cli._help import (
    DATA_OPTION,
    DEVICE,
    DEVICE_FORM,
    MODEL,
    MODEL_FORM,
    NORMALIZATION,
    PAIR_FORM,
    PICTURES,
    PICTURES_FORM,
    QUIET,
)
from gradveil.cli._networks import check_file, print_now_and_then, resumable
from gradveil.cli.audit import METHOD, option
from gradveil.cli.train_gan import source_of

if TYPE_CHECKING:
    from gradveil.generators.training import Course, Progress

WHAT, LEARN = option("What is attacked (as for `gradveil audit`)"), option("How it is trained")
HOW, OUT = option("How it is computed"), option("What comes out")
DATA = f"Clients' pictures: {PICTURES} (default photos). Those that the audit attacks or seeks among are left out."


def train_inverter(
    out: Annotated[Path, OUT("File to write the weights to, with their provenance.", metavar="FILE.safetensors")],
    model: Annotated[str | None, WHAT(f"Model: {MODEL} (default lenet).", metavar=MODEL_FORM)] = None,
    weights: Annotated[
        str | None,
        WHAT("Weights of the model, a .safetensors file (default: random weights, untrained).", metavar="FILE"),
    ] = None,
    data: Annotated[str | None, WHAT(DATA, metavar=PICTURES_FORM)] = None,
    data_option: Annotated[list[str] | None, WHAT(DATA_OPTION, metavar=PAIR_FORM)] = None,
    defense: Annotated[
        str, WHAT("Defense that the clients run (`gradveil list defenses`; default none).", metavar=METHOD)
    ] = "none",
    images: Annotated[int | None, WHAT("Number of clients that the audit attacks (default 8).")] = None,
    draw: Annotated[str | None, WHAT("Which pictures the audit attacks (default seed).", metavar="seed|first")] = None,
    canaries: Annotated[int | None, WHAT("Unusual pictures that the audit attacks as well (default 0).")] = None,
    gallery: Annotated[
        int | None, WHAT("Pictures that the audit seeks the originals among, at most (default 1000).")
    ] = None,
    batch_size: Annotated[int | None, WHAT("Pictures per client (default 1).")] = None,
    local_steps: Annotated[
        int | None, WHAT("Training steps of a client in a round: 1 is FedSGD, 2 or more is FedAvg (default 1).")
    ] = None,
    local_rate: Annotated[float | None, WHAT("Learning rate of the local steps (default 1).")] = None,
    bn: Annotated[str | None, WHAT(f"{NORMALIZATION} (default eval).", metavar="eval|batch|batch-shared")] = None,
    seed: Annotated[
        int | None, WHAT("Random seed of the audit and of the training, an integer from 0 (default 0).")
    ] = None,
    public: Annotated[
        list[str] | None,
        LEARN(
            f"More public pictures of the same classes: {PICTURES}, each with options of its own; repeatable.",
            metavar="DATA[:k=v,...]",
        ),
    ] = None,
    copies: Annotated[
        int, LEARN("Simulated updates per picture: as it is, mirrored, then moved and mirrored (default 2).")
    ] = 2,
    sketch: Annotated[int, LEARN("Numbers that a tensor of an update is shortened to, at most (default 256).")] = 256,
    hidden: Annotated[int, LEARN("Units of the network (default 1024).")] = 1024,
    decoder: Annotated[
        str, LEARN("How pictures are drawn (default perceptron).", metavar="perceptron|convolutions")
    ] = "perceptron",
    epochs: Annotated[int, LEARN("Passes over the simulated updates (default 40).")] = 40,
    seconds: Annotated[
        float | None,
        LEARN(
            "End the training after this many seconds, simulation not counted; the learning rate has fallen by "
            "then (default: no limit).",
            metavar="SECONDS",
        ),
    ] = None,
    rate: Annotated[float, LEARN("Highest learning rate (default 0.001).")] = 1e-3,
    step_size: Annotated[int, LEARN("Updates in a step of the training (default 128).")] = 128,
    device: Annotated[str, HOW(DEVICE, metavar=DEVICE_FORM)] = "auto",
    precision: Annotated[
        str,
        HOW(
            "Arithmetic of the training; bf16 is faster on a GPU and less exact (default float32).",
            metavar="bf16|float32",
        ),
    ] = "float32",
    as_json: Annotated[bool, OUT("Print the result as JSON.", "--json")] = False,
    quiet: Annotated[bool, OUT(QUIET, "--quiet")] = False,
) -> None:
    """Train the network of the attack `learned-inverter`, on simulated updates of public pictures.

    Give it the settings of the audit. Run the same command again to resume.

    [bold]Examples[/bold]

    gradveil train-inverter --data pictures/ --data-option size=32 --weights w.safetensors --out plain.safetensors

    gradveil train-inverter --data pictures/ --data-option size=32 --weights w.safetensors --defense prune:ratio=0.99
    --out pruned.safetensors
    """
    from gradveil.cli._options import check_training, compute_of, config_of
    from gradveil.config.inverter import prepare_inverter
    from gradveil.core.errors import unknown
    from gradveil.generators.learn_inverter import Lesson
    from gradveil.generators.learn_inverter import train_inverter as train
    from gradveil.generators.training import Course

    if precision not in ("bf16", "float32"):
        raise unknown("precision", precision, ("bf16", "float32"))
    check_training({"--epochs": (epochs, 1), "--step-size": (step_size, 1)}, {"--seconds": seconds, "--rate": rate})
    lesson = Lesson(sketch=sketch, copies=copies, hidden=hidden, decoder=decoder)
    check_file(out)
    given: dict[str, Any] = {
        "--model": model, "--weights": weights, "--data": data or "photos", "--data-option": data_option,
        "--defense": [defense], "--images": images, "--draw": draw, "--canaries": canaries, "--gallery": gallery,
        "--batch-size": batch_size, "--local-steps": local_steps, "--local-rate": local_rate, "--bn": bn,
        "--seed": seed,
    }  # fmt: skip
    config = config_of(None, given)
    compute = compute_of(device, "float32", "auto", None)
    more = [source_of(text, (), "public") for text in public or ()]
    course = Course(
        epochs=epochs, seconds=seconds, batch_size=step_size, rate=rate, seed=config.seed, device=compute.device,
        bf16=precision == "bf16",
    )  # fmt: skip
    ready = prepare_inverter(config, more)
    silent = quiet or as_json
    if not silent:
        left_out = f"{ready.public.alike} left out as alike"
        print(f"{len(ready.public.images)} public pictures of {ready.public.name}, {left_out}", file=sys.stderr)
    start = time.monotonic()
    with compute.active(), resumable(out):
        figures = train(
            ready.scenario, ready.defense, ready.public, out, lesson=lesson, course=course,
            on_simulated=simulation_printer(silent), on_epoch=printer(course, silent),
        )  # fmt: skip
    if as_json:
        facts = {"file": str(out), "defense": defense, "public": len(ready.public.images), "alike": ready.public.alike}
        facts |= {"seconds": round(time.monotonic() - start, 1), **vars(figures)}
        typer.echo(json.dumps(facts, indent=2))
    elif not quiet:
        typer.echo(f"held-out pictures, {figures}")
        typer.echo(f"use it as learned-inverter:inverter={out}")


def simulation_printer(silent: bool) -> Callable[[int, int], None] | None:
    """How many clients are simulated, and how long the rest takes."""
    print_line = print_now_and_then(silent)
    if print_line is None:
        return None
    start = time.monotonic()

    def on_simulated(done: int, total: int) -> None:
        spent = time.monotonic() - start
        line = f"simulated {done} of {total} clients, {time_left(spent, done / total)}"
        print_line(line, spent, done == total)

    return on_simulated


def printer(course: Course, silent: bool) -> Callable[[Progress], None] | None:
    """A line for an epoch."""
    print_line = print_now_and_then(silent)
    if print_line is None:
        return None

    def on_epoch(progress: Progress) -> None:
        done = progress.epoch / course.epochs
        if course.seconds is not None:
            done = max(done, progress.seconds / course.seconds)
        where = f"epoch {progress.epoch} of {course.epochs}, loss {progress.loss:.4f}"
        print_line(f"{where}, {time_left(progress.seconds, min(done, 1.0))}", progress.seconds, done >= 1)

    return on_epoch


def time_left(spent: float, share: float) -> str:
    """
    >>> time_left(10.0, 0.25)
    '30 s left'
    """
    return f"{spent * (1 - share) / share:.0f} s left"
