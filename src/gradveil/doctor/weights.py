"""The weights: whether they are this model's."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject


def look_at_weights(subject: Subject) -> Iterator[Finding]:
    if subject.capture is not None:
        yield Finding(topic="weights", level="ok", what="the capture's, as sent to the clients")
    elif subject.fault:
        subject.hopeless = True
        yield Finding(
            topic="weights",
            level="problem",
            what=subject.fault,
            why="without its weights another model is audited than yours",
            do="give the model that these weights were saved from, with the same arguments",
        )
    elif subject.config.scenario.weights:
        count = len(subject.model.state_dict())
        yield Finding(topic="weights", level="ok", what=f"all {count} tensors matched by name and shape, all finite")
    else:
        yield Finding(
            topic="weights",
            level="note",
            what="none given: the model is untrained",
            why="untrained models leak most; your own at the end of training may leak less",
            do="set `weights` to audit the model as it is",
        )
