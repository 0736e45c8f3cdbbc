"""Label smoothing that nobody declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.fit import fit
from gradveil.capture.causes.story import Evidence, Story

USUAL, LEAST = (0.0, 0.1, 0.05, 0.2), 2e-3


def smooth_labels(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    if story.training.loss != "cross-entropy":
        return
    for smoothing in USUAL:
        if smoothing != story.training.label_smoothing:
            yield _attempt(story, smoothing)
    if story.training.is_linear:
        (found,), _ = fit(lambda numbers: _smooth(story, numbers), [0.1], evidence)
        if LEAST < found < 1:
            yield replace(_attempt(story, float(f"{found:.3g}")), freedom=1)


def _attempt(story: Story, smoothing: float) -> Attempt:
    do = f"save the capture with training.label_smoothing = {smoothing:g}"
    return Attempt(name=f"its labels were smoothed by {smoothing:g}", story=_smooth(story, [smoothing]), do=do)


def _smooth(story: Story, numbers: Sequence[float]) -> Story:
    return replace(story, training=replace(story.training, label_smoothing=min(max(numbers[0], 0.0), 1.0)))
