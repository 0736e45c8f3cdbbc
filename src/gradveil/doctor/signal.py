"""Whether there is anything to attack: finite outputs that depend on the picture, and a gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from gradveil.capture.causes.story import train_once
from gradveil.capture.scenario import known_targets
from gradveil.core.scenario import LocalTraining, Scenario
from gradveil.core.types import Batch
from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject

PICTURES = 2


def look_at_signal(subject: Subject) -> Iterator[Finding]:
    shape = subject.capture.shape if subject.capture is not None else None
    batch = subject.batch or _noise(shape or (3, 32, 32), subject)
    found = find_hopeless(subject.model, batch, subject.training)
    subject.hopeless = subject.hopeless or found is not None
    yield found or Finding(
        topic="signal", level="ok", what="outputs are finite, differ between pictures, and give a gradient"
    )


def _noise(shape: tuple[int, int, int], subject: Subject) -> Batch:
    assert subject.capture is not None
    rng = torch.Generator().manual_seed(0)
    labels = known_targets(subject.capture.answer)[:PICTURES]
    return Batch(torch.rand(PICTURES, *shape, generator=rng), labels)


def find_hopeless_scenario(scenario: Scenario) -> Finding | None:
    """Of the first client, where somebody knows its pictures."""
    if not scenario.has_truth:
        return None
    images, labels = (part[0, :PICTURES].float() for part in scenario.private)
    return find_hopeless(scenario.model, Batch(images, labels), scenario.training)


def find_hopeless(model: nn.Module, batch: Batch, training: LocalTraining) -> Finding | None:
    """Why no attack can say anything, whatever it does. `batch`: pictures of one client."""
    with torch.no_grad():
        logits = model.eval()(_differing(batch.images))
    is_plain = isinstance(logits, Tensor)  # what a loss of the client's own takes may be anything
    if is_plain and not logits.isfinite().all():
        return _report(
            "the model's outputs are not finite",
            "no loss and no gradient can be computed",
            "check the weights, and the range of values that the model expects",
        )
    if is_plain and bool((logits == logits[:1]).all()) and _has_one_update(model, batch, training):
        return _report(
            "the model's outputs and updates are the same for every picture",
            "its update cannot tell pictures apart",
            "check that forward() uses its input, and that the weights are those of a trained model",
        )
    update = train_once(model, Batch(batch.images[:PICTURES], batch.labels[:PICTURES]), training)
    if not all(bool(one.isfinite().all()) for one in update.values()):
        return _report(
            "the update of a client is not finite",
            "training diverges within one round",
            "lower `local_rate`, or check the weights",
        )
    if not any(bool(one.any()) for one in update.values()):
        return _report(
            "the gradient is zero everywhere",
            "an update of zeros holds nothing of a picture",
            "check that parameters are not frozen and that forward() is not under no_grad",
        )
    return None


def _differing(images: Tensor) -> Tensor:
    """Two pictures that differ: where there is one, the other is its negative."""
    if len(images) > 1 and not torch.equal(images[0], images[1]):
        return images[:PICTURES]
    return torch.cat([images[:1], 1 - images[:1]])


def _has_one_update(model: nn.Module, batch: Batch, training: LocalTraining) -> bool:
    """Whether two pictures of one label have the same update: a head of zeros gives the same outputs, and learns."""
    labels = batch.labels[:1].expand(PICTURES, *batch.labels.shape[1:])
    one, other = (
        train_once(model, Batch(picture.expand(PICTURES, -1, -1, -1), labels), training)
        for picture in _differing(batch.images)
    )
    return all(torch.equal(one[name], other[name]) for name in one)


def _report(what: str, why: str, do: str) -> Finding:
    return Finding(topic="signal", level="problem", what=what, why=why, do=do)
