"""How clients train, as it was declared, and what nobody declared."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.doctor.finding import Finding
from gradveil.doctor.subject import Subject


def look_at_training(subject: Subject) -> Iterator[Finding]:
    training = subject.training
    count = subject.config.scenario.batch_size
    steps = training.for_examples(count).steps
    size = min(training.batch_size or count, count)
    more = f", {training.summary}" if training.summary else ""
    pictures, turns = f"{count} picture{'s' * (count > 1)}", f"{steps} step{'s' * (steps > 1)}"
    what = f"{pictures} a client, {turns} on {size}, rate {training.rate:g}, {training.loss}{more}"
    yield Finding(topic="training", level="ok", what=what)
    if not subject.is_declared:
        yield Finding(
            topic="training",
            level="note",
            what="nobody said how clients train: one step of plain SGD is assumed",
            why="one step leaks most; several steps or Adam make other updates, and closed forms stop working",
            do="set `optimizer`, `local_rate`, and `epochs` or `local_steps` as in your training loop",
        )
    for unknown in training.unknowns:
        yield Finding(
            topic="training",
            level="note",
            what=unknown,
            why="the attacker has less to go on, and so have controls and line-up",
        )
    if training.batchnorm != "eval" and size == 1:
        yield Finding(
            topic="training",
            level="note",
            what="batch normalization by the statistics of one picture",
            why="each layer then sees nothing but what differs within that picture",
            do="check the batch size, or set `batchnorm = eval`",
        )
