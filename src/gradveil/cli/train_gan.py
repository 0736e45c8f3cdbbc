"""`gradveil train-gan`: the generator that ROGS searches in, trained on public pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from gradveil.cli.audit import option

WHAT, LEARN = option("What it is trained on"), option("How it is trained")
HOW, OUT = option("How it is computed"), option("What comes out")
DATA = "Public pictures with one class each: a name, a folder of class folders, .zip or .npz."
AVOID = "Pictures that will be attacked: what looks like one of them is left out of the training; may be repeated."


def train_gan(
    data: Annotated[str, WHAT(DATA, metavar="DATA[:k=v,...]")],
    out: Annotated[
        Path, OUT("The weights, with where they come from, and FILE.png beside.", metavar="FILE.safetensors")
    ],
    data_option: Annotated[list[str] | None, WHAT("An option of the data; may be repeated.", metavar="K=V")] = None,
    avoid: Annotated[list[str] | None, WHAT(AVOID, metavar="DATA[:k=v,...]")] = None,
    size: Annotated[int, WHAT("Side of the pictures: 8, 16, 32, 64 or 128 (default: the data's own).")] = 0,
    steps: Annotated[int, LEARN("Of the generator (default 20,000).")] = 20_000,
    seconds: Annotated[float | None, LEARN("End after so many, with the rates down by then.")] = None,
    batch_size: Annotated[int, LEARN("(default 128)")] = 128,
    critic_steps: Annotated[int, LEARN("For each one of the generator (default 2).")] = 2,
    rate: Annotated[float, LEARN("Of the generator (default 2e-4).")] = 2e-4,
    critic_rate: Annotated[float, LEARN("(default 4e-4)")] = 4e-4,
    width: Annotated[int, LEARN("Channels of the generator; half of it at full size (default 256).")] = 256,
    critic_width: Annotated[int, LEARN("(default 128)")] = 128,
    seed: Annotated[int, LEARN("Same seed, same weights, unless --seconds ends it (default 0).")] = 0,
    device: Annotated[str, HOW("Where (default auto).", metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[str, HOW("bf16 is faster on a GPU (default float32).", metavar="bf16|float32")] = "float32",
    graphs: Annotated[bool, HOW("On a GPU, run a step as one CUDA graph.", "--graphs/--no-graphs")] = True,
    quiet: Annotated[bool, OUT("Print nothing but errors.", "--quiet")] = False,
) -> None:
    """Train a class-conditional GAN. Interrupted, it goes on where it was.

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
