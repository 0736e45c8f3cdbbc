"""Weight decay that nobody declared, or that was not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.fit import fit
from gradveil.capture.causes.story import Evidence, Story

DECAYS, FURTHER = (1e-4, 5e-4), (0.0, 1e-3, 1e-2)
LEAST, MOST = 1e-6, 0.1  # more would shrink the weights to nothing


def change_decay(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    for decay in (*DECAYS, *FURTHER):
        if decay != story.training.weight_decay:
            yield _attempt(story, decay, quick=decay in DECAYS)
    if story.training.is_linear:
        (decay,), _ = fit(lambda numbers: _decayed(story, numbers), [0.0], evidence)
        if LEAST < decay < MOST:
            yield replace(_attempt(story, float(f"{decay:.3g}")), freedom=1, quick=False)


def _attempt(story: Story, decay: float, quick: bool = False) -> Attempt:
    do = f"save the capture with training.weight_decay = {decay:g}"
    return Attempt(name=f"its weight decay was {decay:g}", story=_decayed(story, [decay]), do=do, quick=quick)


def _decayed(story: Story, numbers: Sequence[float]) -> Story:
    return replace(story, training=replace(story.training, weight_decay=max(0.0, numbers[0])))
