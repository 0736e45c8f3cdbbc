"""The same pictures under another resize or crop, where their files are at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story
from gradveil.core.types import Batch


def change_resize(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    for name, images in evidence.views():
        if images.shape == story.batch.images.shape:
            changed = replace(story, batch=Batch(images, story.batch.labels))
            do = f"load the data with {name}, or give the client's own pixels as .npz"
            yield Attempt(name=f"the client's pictures were made with {name}", story=changed, do=do)
