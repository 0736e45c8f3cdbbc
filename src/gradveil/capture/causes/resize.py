"""The same pictures under another resize or crop, where their files are at hand."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.inputs import feed
from gradveil.capture.causes.story import Evidence, Story


def change_resize(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    """Only on pictures that nothing else was done to: other reasons follow on top of it."""
    for name, images in evidence.views().items():
        if images.shape == story.batch.images.shape:
            do = f"load the data with {name}, or give the client's own pixels as .npz"
            yield Attempt(name=f"the client resized with {name}", story=feed(story, images), do=do)
