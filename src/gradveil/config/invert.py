"""A gradient back to its pictures, as a function: for people who have tensors and want to look."""

from __future__ import annotations

import copy
import html
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from gradveil.attacks.autoattack import autoattack, run_stages
from gradveil.config.normalization import normalize_as
from gradveil.core.attack import Attack
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining, Received, Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe_received
from gradveil.core.types import Batch
from gradveil.lineup.guess import by_name
from gradveil.report.figures import png_uri
from gradveil.transforms.picture import to_picture

Tensors = Mapping[str, Tensor] | Sequence[Tensor | None]
SHARES = (1 / 256, 1 / 64, 1 / 16, 1 / 4, 1.0)  # of an attack's steps, where time is limited
GROWTH = 4.5  # times as long as with the share before
EXPLAINED = 0.99  # match from which pictures can be believed
ENLARGED, GAP = 128, 6  # pixels of a picture that is shown, and between two


@dataclass(frozen=True, kw_only=True)
class Inverted:
    """What the attacks made of a gradient.

    match: cosine between the gradient that came and the one that these pictures make; 1 explains it whole. A low match
    is a failed attack, which says nothing of what a stronger one sees.
    """

    images: Tensor  # [example, channel, height, width] in [0, 1]
    labels: Tensor  # [example], class numbers; [example, class] where they were given so
    match: float
    seconds: float
    notes: tuple[str, ...] = ()

    def show(self) -> Image.Image:
        """The pictures side by side, enlarged without smoothing; a notebook draws what a cell ends with."""
        pictures = [enlarge(to_picture(image)) for image in self.images]
        width, height = (sum(p.width + GAP for p in pictures) - GAP, max(p.height for p in pictures))
        sheet = Image.new("RGB", (width, height), "white")
        for place, picture in enumerate(pictures):
            sheet.paste(picture, (place * (pictures[0].width + GAP), 0))
        return sheet

    @property
    def summary(self) -> str:
        failed = "; these pictures do not explain the gradient, and a failed attack is no protection"
        return f"match {self.match:.4f} after {self.seconds:.0f} s{failed if self.match < EXPLAINED else ''}"

    def _repr_html_(self) -> str:
        style = f"width:{ENLARGED}px;image-rendering:pixelated;margin-right:{GAP}px"
        drawn = "".join(f'<img style="{style}" src="{png_uri(image.numpy())}">' for image in self.images)
        return f"<div>{drawn}<p>{html.escape(self.summary)}</p></div>"


def enlarge(picture: Image.Image) -> Image.Image:
    times = max(1, ENLARGED // max(picture.size))
    return picture.resize((times * picture.width, times * picture.height), Image.Resampling.NEAREST)


def invert(
    model: nn.Module,
    gradient: Tensors,
    labels: Tensor | Sequence[int] | int | None = None,
    *,
    shape: tuple[int, int, int],
    examples: int | None = None,
    training: LocalTraining | None = None,
    normalize: str = "none",
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> Inverted:
    """Make the pictures that led to a gradient, by the closed forms and searches of `autoattack`.

    Args:
        model: The model with the weights at which the gradient was taken, in the mode (`train` or `eval`) that it had.
        gradient: What `torch.autograd.grad` returned for `model.parameters()`, or tensors by parameter name; of several
            local steps the weights before minus the weights after.
        labels: Class numbers of the pictures, or soft labels [example, class] (default: read off the gradient).
        shape: Channels, height and width of a picture.
        examples: Number of pictures in the batch (default: as many as `labels`, or 1).
        training: How the client trained (default: one step on the mean cross-entropy of the whole batch).
        normalize: Constants of a client that normalizes outside of the model: imagenet, cifar10, cifar100, none, or
            numbers as in `0.5,0.5,0.5/0.25,0.25,0.25`.
        seconds: Time after which no larger effort is begun (default: all of it).
        steps: Steps of the searches (default: their own).
        seed: Of all random numbers.
        compute: Device, precision and back end.
    """
    start = time.monotonic()
    seen = observe_gradient(model, gradient, labels, shape, examples, training, normalize)
    stages = autoattack(steps=steps).stages
    limited = stages.items() if seconds is None else list_efforts(stages, start + check_seconds(seconds))
    with compute.active():
        found = run_stages(seen, limited, Seed(seed), compute)
    given = labels if isinstance(labels, Tensor) and labels.dim() == 2 else None
    return Inverted(
        images=found.images[0].detach().float().cpu().clamp(0, 1),
        labels=found.labels[0].argmax(-1).cpu() if given is None else given,
        match=1 - float(found.loss[0].nan_to_num(1.0)),
        seconds=time.monotonic() - start,
        notes=found.notes,
    )


def check_seconds(seconds: float) -> float:
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"must be above 0, got {seconds:g}", key="seconds")
    return seconds


def list_efforts(stages: Mapping[str, Attack], until: float) -> Iterator[tuple[str, Attack]]:
    """Closed forms, then the searches with growing shares of their steps while there is time for the next.

    The first share is always taken: an attack without a result says nothing.
    """
    searches = {name: stage for name, stage in stages.items() if stage.evaluations is not None}
    yield from ((name, stage) for name, stage in stages.items() if name not in searches)
    last = 0.0
    for share in SHARES:
        begun = time.monotonic()
        if begun + GROWTH * last > until and share > SHARES[0]:
            return
        for name, stage in searches.items():
            if (shorter := stage.scaled(share)) is not None:
                yield name, shorter
        last = time.monotonic() - begun


def observe_gradient(
    model: nn.Module,
    gradient: Tensors,
    labels: Tensor | Sequence[int] | int | None,
    shape: tuple[int, int, int],
    examples: int | None,
    training: LocalTraining | None,
    normalize: str,
) -> Observation:
    """What a server knows that received this gradient alone."""
    update, like = by_name(model, gradient, key="gradient"), next(model.parameters())
    mode = model.training
    model = normalize_as(copy.deepcopy(model), normalize, shape[0])
    classes = count_classes(model, shape)
    soft = None if labels is None else soften(labels, classes)
    count = examples or (1 if soft is None else len(soft))
    if soft is not None and len(soft) != count:
        raise ConfigError(f"must be {count}, as many as `examples`, got {len(soft)}", key="labels")
    received = Received(
        update={name: u.detach().to(like).unsqueeze(0) for name, u in update.items()},
        labels=None if soft is None else soft.unsqueeze(0),
    )
    unknown = Batch(torch.zeros(1, count, *shape), torch.zeros(1, count, classes))  # their size alone is known
    scenario = Scenario(
        name="invert",
        model=model,
        private=unknown,
        names=("client",),
        training=training or LocalTraining(batchnorm="batch" if mode else "eval"),
        threat=ThreatModel(knows_labels=soft is not None),
        received=received,
    )
    return observe_received(scenario, Defense())[0]


@torch.no_grad()
def count_classes(model: nn.Module, shape: tuple[int, int, int]) -> int:
    """By what comes out for a gray picture."""
    mode, like = model.training, next(model.parameters())
    try:
        out = model.eval()(torch.full((1, *shape), 0.5, dtype=like.dtype, device=like.device))
    except RuntimeError as error:
        why = " ".join(str(error).split())[:120]
        raise ConfigError(f"the model cannot take pictures of {tuple(shape)}: {why}", key="shape") from error
    finally:
        model.train(mode)
    if not isinstance(out, Tensor) or out.dim() != 2:
        raise ConfigError("must give one row of logits for each picture", key="model")
    return out.shape[1]


def soften(labels: Tensor | Sequence[int] | int, classes: int) -> Tensor:
    """Class numbers as one-hot rows; soft labels as they are."""
    given = torch.as_tensor([labels] if isinstance(labels, int) else labels).detach().cpu()
    if given.dim() == 2 and given.shape[1] == classes and given.is_floating_point():
        return given.float()
    whole = given.dim() == 1 and not given.is_floating_point() and len(given) > 0
    if not whole or not 0 <= int(given.min()) <= int(given.max()) < classes:
        raise ConfigError(f"must be classes from 0 to {classes - 1}, or soft labels [example, {classes}]", key="labels")
    return F.one_hot(given.long(), classes).float()
