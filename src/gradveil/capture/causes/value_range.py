"""Pictures in another range than 0 to 1."""

from __future__ import annotations

from collections.abc import Iterator

from torch import tensor

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.inputs import feed
from gradveil.capture.causes.story import Evidence, Story
from gradveil.models.normalize import normalizes

DO = "put that range into the model's first layer, or give the pixels as the client feeds them"


def change_range(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    if not normalizes(story.model):
        half = ",".join(["0.5"] * story.batch.images.shape[1])
        do = f"audit with `normalize = {half}/{half}`"
        yield Attempt(name="the client fed pictures from -1 to 1", story=feed(story, tensor(2.0), tensor(-1.0)), do=do)
    yield Attempt(name="the client fed pixels from 0 to 255", story=feed(story, tensor(255.0), tensor(0.0)), do=DO)
    yield Attempt(
        name="the client fed 1 - pixels (inverted)", story=feed(story, tensor(-1.0), tensor(1.0)), do=DO, quick=False
    )
