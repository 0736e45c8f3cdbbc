"""Another thing was saved than `w_sent - w_after`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.story import Evidence, Story

DO = "save w_sent - w_after in the capture"


def change_form(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    if story.form == "update":
        yield Attempt(name="its sign is flipped", story=replace(story, form="negative"), do=DO)
        yield Attempt(name="weights were saved in its place", story=replace(story, form="weights"), do=DO)
