"""The least accuracy score: published, given as a number, or as a share of the candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gradveil.core.errors import ConfigError
from gradveil.search.accuracy import THRESHOLD
from gradveil.search.scoring import Task
from gradveil.transforms.policy import Policy

if TYPE_CHECKING:
    from gradveil.search.runner import SearchRunner

KEPT = 0.9  # of the candidates where the published threshold does not apply
ROUNDING = 1e-9  # 0.3 * 10 is a little above 3


def parse_threshold(text: float | str) -> tuple[float | None, float | None]:
    """A least score, or a share to keep; neither where nothing is given.

    >>> parse_threshold("90%"), parse_threshold("-1.3"), parse_threshold("")
    ((None, 0.9), (-1.3, None), (None, None))
    """
    if text == "":
        return None, None
    given, share = str(text).strip(), str(text).strip().endswith("%")
    try:
        number = float(given.removesuffix("%"))
    except ValueError as error:
        expected = "must be a number such as -1.35 or a share such as 90%"
        raise ConfigError(f"{expected}, got {given!r:.100}", key="threshold") from error
    if share and not 0 < number <= 100:
        raise ConfigError(f"must be above 0% and at most 100%, got {given}", key="threshold")
    if not math.isfinite(number):
        raise ConfigError(f"must be a finite number, got {given}", key="threshold")
    return (None, number / 100) if share else (number, None)


class LeastAccuracy(NamedTuple):
    """The least accuracy score, and why it is this one."""

    value: float
    untransformed: float
    rule: str


def least_accuracy(runner: SearchRunner, policies: Sequence[Policy], threshold: float | str) -> LeastAccuracy:
    """The threshold that is set. Where none is, the published one, or a share if untransformed pictures miss it: it was
    found with ResNet20-4 on CIFAR-100, and models differ."""
    plain = Policy(runner.library, ((),))
    runner.score("accuracy", [Task("accuracy", str(policy)) for policy in dict.fromkeys([*policies, plain])])
    scores = sorted(
        (found for policy in policies if (found := runner.mean("accuracy", policy)) is not None), reverse=True
    )
    untransformed = runner.mean("accuracy", plain) or 0.0
    least, share = parse_threshold(threshold)
    if least is None and share is None:
        least, share = (None, KEPT) if untransformed < THRESHOLD else (THRESHOLD, None)
        rule = "published" if share is None else f"best {KEPT:.0%}, since untransformed pictures miss the published one"
    else:
        rule = "given"
    if share is not None:
        least = scores[max(0, math.ceil(share * len(scores) - ROUNDING) - 1)] if scores else 0.0
    return LeastAccuracy(least if least is not None else THRESHOLD, untransformed, rule)
