"""The model: its size, and layers that decide how an update comes about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import nn

from gradveil.capture.causes.dropout import has_dropout
from gradveil.capture.causes.normalization import format_constants
from gradveil.core.client import BATCH_NORMS
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject
from gradveil.models.normalize import constants_of, normalizes

KINDS = {
    "convolution": (nn.Conv1d, nn.Conv2d, nn.Conv3d),
    "linear": (nn.Linear,),
    "batch normalization": BATCH_NORMS,
    "layer or group normalization": (nn.LayerNorm, nn.GroupNorm),
    "attention": (nn.MultiheadAttention,),
}


def look_at_model(subject: Subject) -> Iterator[Finding]:
    model = subject.model
    tensors = [parameter for parameter in model.parameters() if parameter.requires_grad]
    frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
    counts = Counter(kind for layer in model.modules() for kind, types in KINDS.items() if isinstance(layer, types))
    layers = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or "no layer of torch's usual ones"
    size = sum(parameter.numel() for parameter in tensors)
    what = f"{type(model).__name__}: {size:,} trained numbers in {len(tensors)} tensors; layers: {layers}"
    yield Finding(topic="model", level="ok", what=what)
    for note in subject.notes:
        yield Finding(
            topic="model",
            level="note",
            what=note,
            why="it was understood by itself",
            do="say it yourself if it is wrong",
        )
    if frozen:
        why = "frozen parameters are in no update, so attacks do not see them"
        yield Finding(
            topic="model", level="note", what=f"{frozen:,} numbers are frozen (requires_grad is off)", why=why
        )
    yield from _look_at_batchnorm(subject, counts["batch normalization"])
    yield from _look_at_dropout(subject)
    yield from _look_at_normalization(subject)


def _look_at_batchnorm(subject: Subject, layers: int) -> Iterator[Finding]:
    mode = subject.training.batchnorm
    said = "scenario.batchnorm" in subject.config.declared or subject.capture is not None
    if not layers and mode != "eval":
        yield Finding(
            topic="model",
            level="note",
            what=f"batchnorm is {mode}, but the model has no such layer",
            why="the setting changes nothing",
            do="leave `batchnorm` out",
        )
    elif layers and mode == "eval" and not said:
        yield Finding(
            topic="model",
            level="note",
            what=f"{layers} batch normalization layers are audited with running statistics",
            why="a plain training loop calls model.train(), and then every update depends on its whole batch, which is "
            "harder to invert; what is audited leaks more",
            do="set `batchnorm = batch` if your clients train so",
        )
    elif layers and mode == "batch":
        yield Finding(
            topic="model",
            level="note",
            what=f"{layers} batch normalization layers use the batch's own statistics (batch); the running ones are "
            "taken as not sent",
            why="a client that sends its whole state dict sends them too, and they tell the server more of the batch",
            do="set `batchnorm = batch-shared` if your clients send them",
        )
    elif layers:
        kind = "the batch's own statistics" if mode != "eval" else "running statistics"
        yield Finding(topic="model", level="ok", what=f"batch normalization by {kind} ({mode})")
    if layers and mode == "eval" and _has_fresh_statistics(subject.model) and subject.config.scenario.weights:
        why = (
            "the weights are trained and the statistics are as new: in evaluation such a model computes something else"
        )
        yield Finding(
            topic="model",
            level="note",
            what="running statistics are 0 and 1 everywhere",
            why=why,
            do="save the whole state_dict(), buffers included, or set `batchnorm = batch`",
        )


def _has_fresh_statistics(model: nn.Module) -> bool:
    pairs = [(one.running_mean, one.running_var) for one in model.modules() if isinstance(one, BATCH_NORMS)]
    return all(m is None or v is None or bool((m == 0).all() and (v == 1).all()) for m, v in pairs)


def _look_at_dropout(subject: Subject) -> Iterator[Finding]:
    channels, height, width = _shape(subject)
    if not has_dropout(subject.model, torch.full((1, channels, height, width), 0.5)):
        return
    if subject.training.dropout == "on":
        yield Finding(topic="model", level="ok", what="dropout is on in the clients; attacks do not know its masks")
        return
    yield Finding(
        topic="model",
        level="note",
        what="the model has dropout, and clients are audited without it",
        why="a plain training loop calls model.train(), which turns it on",
        do="set `dropout = on` if your clients train so",
    )


def _shape(subject: Subject) -> tuple[int, int, int]:
    if subject.capture is not None:
        return subject.capture.shape
    assert subject.dataset is not None
    return subject.dataset.shape


def _look_at_normalization(subject: Subject) -> Iterator[Finding]:
    channels = _shape(subject)[0]
    if normalizes(subject.model):
        mean, std = (tuple(one.tolist()) for one in constants_of(subject.model, channels))
        shown = format_constants((mean, std))
        yield Finding(topic="normalization", level="ok", what=f"pictures in [0, 1] are normalized with {shown}")
    elif subject.config.scenario.normalize == "none":
        yield Finding(topic="normalization", level="ok", what="none, as declared: the model gets pictures in [0, 1]")
    else:
        yield Finding(
            topic="normalization",
            level="note",
            what="none of gradveil's layers normalizes: the model gets [0, 1]",
            why="if your transform normalizes, this model sees other numbers here than in your clients, and what is "
            "measured is not what they leak",
            do="set `normalize = imagenet` or the constants of your transform; `normalize = none` if there are none",
        )
