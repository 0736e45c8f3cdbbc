"""Gradients that the client clipped in every step, or did not clip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.fit import fit
from gradveil.capture.causes.story import Evidence, Story

USUAL = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
LEAST = 1e-6


def clip_steps(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    """Of a single step of SGD clipping is a factor."""
    training = story.training
    if training.optimizer == "sgd" and training.steps == 1 and not training.clip_gradients:
        return
    for norm in USUAL:
        if norm != training.clip_gradients:
            yield _attempt(story, norm)
    start = min(USUAL[1:], key=lambda norm: evidence.error(_clip(story, norm)))
    (found,), _ = fit(lambda numbers: _clip(story, max(numbers[0], LEAST)), [start], evidence)
    if found > LEAST:
        yield replace(_attempt(story, float(f"{found:.4g}")), freedom=1)


def _attempt(story: Story, norm: float) -> Attempt:
    name = f"its gradients were clipped at {norm:g}" if norm else "its gradients were not clipped"
    return Attempt(name=name, story=_clip(story, norm), do=f"save the capture with training.clip_gradients = {norm:g}")


def _clip(story: Story, norm: float) -> Story:
    return replace(story, training=replace(story.training, clip_gradients=norm))
