"""Pictures that are softer or sharper than those given: what another resize leaves where the files are not at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch.nn.functional as F

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.fit import fit
from gradveil.capture.causes.story import Evidence, Story
from gradveil.core.types import Batch

ROUNDS, LEAST = 4, 0.01
DO = "give the client's own pixels as .npz, or load the data with the client's resize"


def change_detail(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    images = story.batch.images
    if min(images.shape[2:]) < 3:
        return
    edges = images - F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)

    def make(numbers: Sequence[float]) -> Story:
        return replace(story, batch=Batch(images + numbers[0] * edges, story.batch.labels))

    (amount,), _ = fit(make, [0.0], evidence, ROUNDS)
    if abs(amount) >= LEAST:
        kind = "sharper" if amount > 0 else "softer"
        name = f"the client's pictures are {kind} than these, as after another resize"
        yield Attempt(name=name, story=make([amount]), do=DO, freedom=1)
