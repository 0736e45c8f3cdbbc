"""Whether "at most this share of such pictures leaks" may be said, and what it would take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradveil.audit.verdict import Finding, Verdict
from gradveil.core.errors import ConfigError
from gradveil.core.interval import supports

LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`needed`: with fewer pictures it cannot be supported, even if none of them leaks."""

    share: float
    supported: bool
    bound: float  # the largest share that the judged defenses leave open
    needed: int
    against: tuple[Finding, ...]  # what does not support it


def examine_claim(verdict: Verdict, share: float) -> Claim:
    """Of a run as a whole: every judged defense must support it. Chosen pictures have no part in it."""
    if not 0 < share < 1:
        raise ConfigError(f"claim: must be a share between 0 and 1, got {share}")
    drawn = [finding for finding in verdict.judged if finding.tally.is_sample]
    against = tuple(finding for finding in drawn if not finding.supports(share))
    return Claim(
        share=share,
        supported=bool(drawn) and not against,
        bound=max((1.0 if f.at_most is None else f.at_most for f in drawn), default=1.0),
        needed=pictures_needed(share),
        against=against,
    )


def pictures_needed(share: float) -> int:
    """The fewest pictures of which none may leak.

    >>> pictures_needed(0.01)
    299
    """
    guess = max(1, math.floor(math.log(1 - LEVEL) / math.log1p(-share)))
    return next(n for n in range(max(1, guess - 1), guess + 3) if supports(share, 0, n, LEVEL))
