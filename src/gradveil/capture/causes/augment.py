"""Pictures that the client cropped and flipped at random, compared with rounds of our own draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

NAME = "the client cropped and flipped its pictures at random"
DO = 'save the capture with training.augment = "crop-flip"; the attacks then run without its crops, which nobody knows'


def crop_pictures(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    if story.training.augment == "none":
        yield Attempt(name=NAME, story=replace(story, training=replace(story.training, augment="crop-flip")), do=DO)
