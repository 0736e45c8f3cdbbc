"""Whether client and attacker speak of the same update: the true pictures must explain it, in every cell.

The numbers are those of `gradveil.audit.oracle`, one set a client. docs/oracle.md says how the limits were found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from gradveil.audit.oracle import (
    AGAIN,
    ALIKE,
    ANOTHER,
    FOUND,
    KNOWN,
    MATCHED,
    PLAIN,
    RECONSTRUCTION,
    REPEATED,
    REPLAY,
    TRUTH,
    WRONG,
    ZEROED,
)
from gradveil.experiment.record import Record

Numbers = Mapping[str, float]
Failure = Literal[
    "", "given", "scores", "received", "model", "constant", "nothing", "plain", "lacking", "zeroed", "blind"
]
LEAST = 0.02  # a smaller difference is no finding
ERRORS = 4.0  # standard errors that a difference of random draws must reach
EQUAL = 1e-12  # what two different pictures explain, if the attacker's client does not look at them
FEW = 0.5  # of the numbers of an update: a surrogate that matches fewer may match too few
NO_WORSE = 0.002  # a reconstruction that explains less than the truth by no more
MOST = 0.5  # of the update may be unexplained and come again in every draw, or be left out where the attacker sends it
LOWEST = -1.0  # below, how bad an explanation is means nothing


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """One cell. Shares of the update that are explained, means over the clients; None: not measured."""

    scenario: str
    defense: str
    attack: str
    attacker: str
    clients: int
    passed: bool | None
    failure: Failure
    reconstruction: float | None
    truth: float | None
    reconstruction_again: float | None  # of an update by new draws, that no attack has seen
    truth_again: float | None
    message: str

    @property
    def shown_truth(self) -> float | None:
        """Of a new draw where there is one."""
        return self.truth if self.truth_again is None else self.truth_again

    @property
    def shown_reconstruction(self) -> float | None:
        return self.reconstruction if self.truth_again is None else self.reconstruction_again

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)}


def check_oracle(records: Sequence[Record]) -> Oracle:
    """The records of one cell. Not measured (`passed` is None) where no originals are, or no client could be played."""
    numbers = list(by_client(records))
    failure = find_failure(numbers) if numbers else ""
    means = {name: _mean(numbers, name) for name in (RECONSTRUCTION, TRUTH, RECONSTRUCTION + AGAIN, TRUTH + AGAIN)}
    first = records[0]
    return Oracle(
        scenario=first.scenario,
        defense=first.defense,
        attack=first.attack,
        attacker=first.attacker,
        clients=len(numbers),
        passed=None if not numbers else not failure,
        failure=failure,
        **means,
        message=_message(first, failure, means, numbers),
    )


def by_client(records: Iterable[Record]) -> Iterator[Numbers]:
    """What was measured of each update once: the pictures of a batch share it."""
    found = {record.client: record.explained for record in records if record.status == "ok"}
    for numbers in found.values():
        finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
        if TRUTH in finite:
            yield finite


def find_failure(numbers: Sequence[Numbers]) -> Failure:
    """The first that applies; empty: passed."""
    suffix = AGAIN if any(TRUTH + AGAIN in one for one in numbers) else ""
    truth = TRUTH + suffix
    if any(WRONG in one for one in numbers):
        return "given"
    if fmean(one.get(KNOWN, 1.0) for one in numbers) < 1 - LEAST:
        return "scores"
    if any(one.get(REPLAY, 1.0) < 1 - LEAST for one in numbers):
        return "received"
    if suffix and any(REPLAY not in one for one in numbers) and _is_more(numbers, truth, TRUTH):
        return "received"  # where no round can be played again, the spread over the clients decides
    if _is_constant(numbers, suffix):
        return "constant"
    if _is_more(numbers, RECONSTRUCTION + suffix, truth):
        return "model"
    if _is_below_zero(numbers, truth):
        return "nothing"
    if _is_more(numbers, PLAIN, TRUTH):
        return "plain"
    if _is_most(numbers, REPEATED):
        return "lacking"
    if _is_most(numbers, ZEROED):
        return "zeroed"
    return "blind" if _is_blind(numbers, RECONSTRUCTION + suffix, truth) else ""


def find_shortfall(records: Sequence[Record]) -> str:
    """What is wrong with a search whose reconstructions explain clearly less than the truth; empty: nothing is."""
    numbers = list(by_client(records))
    if not _is_more(numbers, TRUTH, FOUND):
        return ""
    truth, found = (_percent(_mean(numbers, name)) for name in (TRUTH, FOUND))
    return f"its reconstructions explain {found} of the updates and the true pictures {truth}, so it has not found them"


def _is_more(numbers: Sequence[Numbers], one: str, other: str) -> bool:
    """Whether one clearly explains more than the other, client by client.

    Differences of clients are not normal when something is wrong (a few may be far off), so the spread of what should
    be the right number counts where it is the smaller.
    """
    pairs = [(_limit(found[one]), _limit(found[other])) for found in numbers if one in found and other in found]
    apart = [x - y for x, y in pairs]
    spreads = [_spread(apart), _spread([x for x, _ in pairs]) * math.sqrt(2)]
    return bool(apart) and fmean(apart) > LEAST + ERRORS * min(spreads) / math.sqrt(len(apart))


def _is_below_zero(numbers: Sequence[Numbers], name: str) -> bool:
    """Whether no update at all would explain more."""
    values = [_limit(found[name]) for found in numbers if name in found]
    return bool(values) and -fmean(values) > LEAST + ERRORS * _spread(values) / math.sqrt(len(values))


def _is_constant(numbers: Sequence[Numbers], suffix: str) -> bool:
    """Whether it makes no difference whose pictures go in, though it does to the clients."""
    if all(ALIKE in found for found in numbers):
        return False
    names = TRUTH, ANOTHER, RECONSTRUCTION
    rows = [[found[name] for name in names] for found in numbers if all(name in found for name in names)]
    return bool(rows) and all(max(row) - min(row) <= EQUAL for row in rows)


def _is_most(numbers: Sequence[Numbers], name: str) -> bool:
    """Whether a share is over half, and no accident of a few draws.

    Not of clients that all send the same, whatever their pictures: there is nothing to explain.
    """
    values = [found[name] for found in numbers if name in found]
    if not values or all(ALIKE in found for found in numbers):
        return False
    return fmean(values) > max(MOST, ERRORS * _spread(values) / math.sqrt(len(values)))


def _is_blind(numbers: Sequence[Numbers], got: str, truth: str) -> bool:
    """Whether most of the update is not matched, and in the rest all reconstructions are as good as the truth."""
    rows = [(found[MATCHED], found[got], found[truth]) for found in numbers if {MATCHED, got, truth} <= found.keys()]
    return bool(rows) and all(matched < FEW and got > truth - NO_WORSE for matched, got, truth in rows)


def _limit(value: float) -> float:
    return max(LOWEST, min(1.0, value))


def _spread(values: Sequence[float]) -> float:
    """Of one client there is none to be known; its difference alone decides."""
    return stdev(values) if len(values) > 1 else 0.0


def _mean(numbers: Sequence[Numbers], name: str) -> float | None:
    values = [_limit(found[name]) for found in numbers if name in found]
    return fmean(values) if values else None


def _message(first: Record, failure: Failure, means: Mapping[str, float | None], numbers: Sequence[Numbers]) -> str:
    where = f"{first.attack} ({first.attacker}) on {first.defense}"
    if not numbers:
        return f"{where}: it was not measured how much of the updates the true pictures explain."
    suffix = AGAIN if means[TRUTH + AGAIN] is not None else ""
    truth, got = _percent(means[TRUTH + suffix]), _percent(means[RECONSTRUCTION + suffix])
    sentences: Mapping[Failure, str] = {
        "": f"its reconstructions explain {got} of the updates, the true pictures {truth}.",
        "received": _received(means, numbers),
        "constant": "the attacker's client computes the same update from whatever pictures: it is not the real one.",
        "model": f"its reconstructions explain {got} of the updates, the true pictures {truth}: "
        "the attacker's client is not the real one.",
        "nothing": f"the true pictures explain {truth} of the updates, less than no update at all: "
        "the attacker's client is not the real one.",
        "lacking": f"the true pictures explain {truth} of the updates and its reconstructions {got}, but "
        f"{_percent(_mean(numbers, REPEATED))} are sent again whatever is drawn, and not explained: the attacker's "
        "client is not the real one.",
        "zeroed": f"{_percent(_mean(numbers, ZEROED))} of what it sends for the true pictures came as exact zeros: the "
        "attacker's client is not the real one.",
        "given": "the attacker was given other labels or another training than the clients have, or is scored on other "
        "pictures than they trained on.",
        "scores": f"shown the true pictures themselves, the scores know {_percent(_mean(numbers, KNOWN))} of them.",
        "plain": f"the true pictures explain {_percent(means[TRUTH])} of the updates, and "
        f"{_percent(_mean(numbers, PLAIN))} "
        "in a client without the defense: the attacker's client is not the real one.",
        "blind": f"it matches {_percent(_mean(numbers, MATCHED))} of the numbers of an update, and its reconstructions "
        "explain these as well as the true pictures do: what it matches does not tell pictures apart.",
    }
    return f"{where}: {sentences[failure]}"


def _received(means: Mapping[str, float | None], numbers: Sequence[Numbers]) -> str:
    wrong = sum(one.get(REPLAY, 1.0) < 1 - LEAST for one in numbers)
    if wrong:
        share = f"the true pictures explain {_percent(means[TRUTH])} of the updates"
        return f"{wrong} of {len(numbers)} updates are not what their clients compute; {share}."
    return (
        f"the true pictures explain {_percent(means[TRUTH])} of the updates, but {_percent(means[TRUTH + AGAIN])} of "
        "those that the same clients compute again."
    )


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.0f} %"
