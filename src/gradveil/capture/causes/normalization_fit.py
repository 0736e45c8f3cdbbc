"""Constants of normalization that nobody names, found from the update: a mean and a deviation for each channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradveil.capture.causes.cause import Attempt
from gradveil.capture.causes.fit import fit
from gradveil.capture.causes.inputs import feed_normalized, own_constants
from gradveil.capture.causes.normalization import NAMED, format_constants
from gradveil.capture.causes.story import Evidence, Story

LEAST, MOST = 1e-3, 1e3
FAR = 0.03


def fit_normalization(story: Story, evidence: Evidence) -> Iterator[Attempt]:
    channels = story.batch.images.shape[1]

    def make(numbers: Sequence[float]) -> Story:
        """Of each channel what it is multiplied with, and what it is moved by."""
        gains = [min(max(gain, LEAST), MOST) for gain in numbers[:channels]]
        return feed_normalized(story, [-m / g for g, m in zip(gains, numbers[channels:], strict=True)],
                               [1 / g for g in gains])  # fmt: skip

    starts = [_numbers(*constants) for constants in _starts(story, evidence)]
    start = min(starts, key=lambda numbers: evidence.error(make(numbers)))
    found, _ = fit(make, start, evidence)
    gains, moved = found[:channels], found[channels:]
    if min(gains) <= LEAST:
        return
    constants = tuple(-m / g for g, m in zip(gains, moved, strict=True)), tuple(1 / g for g in gains)
    if _is_near(constants, own_constants(story)):
        return
    shown = format_constants(constants)
    mean, std = shown.split("/")
    name = f"the client normalized with mean {mean} and deviation {std} (fitted)"
    do = f"audit with `normalize = {shown}`, or with the numbers of the client's transform"
    yield Attempt(name=name, story=make(found), do=do, freedom=2 * channels)


def _numbers(mean: Sequence[float], std: Sequence[float]) -> list[float]:
    return [1 / s for s in std] + [-m / s for m, s in zip(mean, std, strict=True)]


def _starts(story: Story, evidence: Evidence) -> Iterator[tuple[Sequence[float], Sequence[float]]]:
    channels = story.batch.images.shape[1]
    mean, std = own_constants(story)
    yield mean.flatten().tolist(), std.flatten().tolist()
    yield [0.5] * channels, [0.5] * channels
    if channels == 3:
        yield NAMED["imagenet"]
    if evidence.constants is not None:
        yield evidence.constants


def _is_near(constants: tuple[Sequence[float], Sequence[float]], own: tuple[object, object]) -> bool:
    """Whether it is what the model does anyway."""
    pairs = [(x, y) for part, o in zip(constants, own, strict=True) for x, y in zip(part, o.flatten().tolist(), strict=True)]  # type: ignore[attr-defined]  # fmt: skip  # noqa: E501
    return all(abs(x - y) < FAR * max(abs(y), FAR) for x, y in pairs)
