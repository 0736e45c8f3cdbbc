"""`gradveil train-gan`: the generator that ROGS searches in, trained on public pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gradveil.cli._help import DATA_OPTION, DEVICE, DEVICE_FORM, PAIR_FORM, PICTURES, QUIET
from gradveil.cli.audit import option

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
    from gradveil.cli.options import check_training
    from gradveil.cli.train_gan_run import Networks, train_and_tell
    from gradveil.core.errors import unknown
    from gradveil.generators.gan_course import GanCourse

    if precision not in ("bf16", "float32"):
        raise unknown("precision", precision, ("bf16", "float32"), where="--precision")
    low = {"--steps": (steps, 1), "--critic-steps": (critic_steps, 1), "--batch-size": (batch_size, 2)}
    low |= {"--size": (size, 0), "--width": (width, 2), "--critic-width": (critic_width, 1), "--seed": (seed, 0)}
    check_training(low, {"--seconds": seconds, "--rate": rate, "--critic-rate": critic_rate})
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
    )
    networks = Networks(size=size, width=width, critic_width=critic_width)
    train_and_tell(data, data_option or [], avoid or [], networks, course, out, device, quiet)
