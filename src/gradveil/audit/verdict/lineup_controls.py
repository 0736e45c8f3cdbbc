"""Whether a line-up can be believed: its controls, and what is missing or wrong in its records.

Three kinds of doubts. *Foreign*: the updates are not what the settings say, or some are missing, and then nothing is
known of them, by a certificate neither. *Weak*: the line-up may name too few. *Blind*: it names pictures by updates
that are not theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any

from gradveil.audit.results import Run
from gradveil.audit.verdict.lineup import CONTROL, NOT_REPLAYED, OFF, Key, LineUpResult, count_line_up, is_sound
from gradveil.core.interval import at_least, at_least_of
from gradveil.experiment.record import Record

NEEDS = 0.9  # of the undefended pictures must be named
AND_SURELY = 0.5  # with 95 % confidence: five of five are
RARE = 0.01  # how often each of these tests may be wrong
THIRD = 2.33  # standard deviations that a mean exceeds by chance in one of a hundred cases
HIGH = 10  # ranks beyond a tenth of the candidates are those of an update that says little
SEVERAL, FEW = 4, 3  # trials that two pictures do not share by chance; pictures that do not share fewer


@dataclass(frozen=True, kw_only=True)
class Doubts:
    """Each completes "the line-up rules nothing out:"; none: it can be believed."""

    foreign: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    blind: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.foreign, *self.weak, *self.blind)

    def __bool__(self) -> bool:
        return bool(self.all)


def check_line_up(
    run: Run, key: Key, result: LineUpResult | None, line_ups: Mapping[Key, Sequence[Record]], at_most: float | None
) -> Doubts:
    """at_most: of the certificate, if there is one."""
    records = line_ups.get(key, ())
    foreign = [*_missing(run, key, records), *describe_foreign(records)]
    if result is None:
        return Doubts(foreign=tuple(foreign))
    if at_most is not None and at_least_of(result.own.shares(), 1 - RARE) > at_most:
        foreign.append(f"it names {result.hits} of {result.of} pictures, more than the certificate allows")
    weak = [*_undefended(run, key, line_ups), *_wrong_ranks(result, records)]
    return Doubts(foreign=tuple(foreign), weak=tuple(weak), blind=tuple(_blind(result)))


def is_planned(run: Run, key: Key) -> bool:
    return any((cell[0], cell[1], cell[3]) == (*key, CONTROL) for cell in run.plan.get("cells", ()))


def _missing(run: Run, key: Key, records: Sequence[Record]) -> Iterator[str]:
    """By picture, so that a line that is there twice hides none that is lost."""
    done = {(record.client, record.example) for record in records}
    examples = run.scenarios.get(key[0], {}).get("batch_size", 1)
    counts = [cell[4] for cell in run.plan.get("cells", ()) if (cell[0], cell[1], cell[3]) == (*key, CONTROL)]
    places = {(c, e) for count in counts for c in run.clients(key[0])[:count] for e in range(examples)}
    if records and not counts:
        yield "the run does not say how many pictures it was planned for"
    if lost := len(places - done):
        yield f"it was not held for {lost} of {len(places)} pictures"
    if failed := sum(record.status == "failed" for record in records):
        yield f"it failed for {failed} of {len(records)} pictures"
    if broken := sum(record.status == "ok" and not is_sound(record) for record in records):
        yield f"{broken} of {len(records)} of its records hold no ranks, or impossible ones"


def describe_foreign(records: Sequence[Record]) -> Iterator[str]:
    """Updates that are not what the settings say, whatever is made of them."""
    counts = Counter(flag for record in records for flag in set(record.flags))
    if off := counts[OFF]:
        yield f"{off} of {len(records)} updates are not what their pictures make under the defense as configured"
    if other := counts[NOT_REPLAYED]:
        yield f"{other} of {len(records)} updates are not what the client sends"


def _undefended(run: Run, key: Key, line_ups: Mapping[Key, Sequence[Record]]) -> Iterator[str]:
    """Without a defense it must name nearly all."""
    control = find_undefended(run, key[0], line_ups)
    records = line_ups.get(control, ()) if control else ()
    result = count_line_up(records)
    if control is None or result is None:
        yield "it was not held without a defense in this scenario"
        return
    if result.own.share() < NEEDS:
        yield f"without a defense it names only {result.hits} of {result.of} pictures, at least 90 % are needed"
    elif result.own.at_least <= AND_SURELY:
        yield f"without a defense it was held for {result.of} pictures only, at least five are needed"
    if control != key and (wrong := [*describe_foreign(records), *_wrong_ranks(result, records), *_blind(result)]):
        yield f"without a defense: {'; '.join(wrong)}"


def find_undefended(run: Run, scenario: str, line_ups: Mapping[Key, Sequence[Record]]) -> Key | None:
    """In the same scenario, or in the one that is its control."""
    names = [scenario, *(name for name, about in run.scenarios.items() if about.get("control_of") == scenario)]
    found = [key for name in names for key in line_ups if key[0] == name and run.undefended(key[1])]
    return found[0] if found else None


def _blind(result: LineUpResult) -> Iterator[str]:
    """By the update of another picture it must be at chance."""
    others = result.others
    if others is not None and at_least(others.hits(), others.of, 1 - RARE) > others.chance:
        yield f"by the update of another picture it names {others.hits()} of {others.of}, more than guessing explains"


def _wrong_ranks(result: LineUpResult, records: Sequence[Record]) -> Iterator[str]:
    """What no honest guess gives: ranks worse than chance, or always the same."""
    if _is_worse_than_guessing(result):
        yield "it ranks the pictures lower than guessing does"
    if _is_repeated(records):
        yield "the same ranks come again and again"


def _is_worse_than_guessing(result: LineUpResult) -> bool:
    """Ranks of a guesser who knows nothing are even; who knows something ranks the picture higher."""
    places = [
        fsum((rank - 0.5) / count for rank in draw) / len(draw)
        for draw, count in zip(result.own.ranks, result.own.candidates, strict=True)
    ]
    return fsum(places) / len(places) > 0.5 + THIRD / sqrt(12 * len(places))


def _is_repeated(records: Sequence[Record]) -> bool:
    """Whether pictures share their ranks, trial by trial, though most are not named.

    Single ranks may well come again: a picture whose gradient is short ranks between those that the noise favors and
    those that it does not, so always in the middle.
    """
    far = [record for record in records if is_sound(record) and _is_far(record)]
    lists = [record.ranks["rank"] for record in far]
    if any(len(ranks) >= SEVERAL and len(set(ranks)) == 1 for ranks in lists):
        return True
    counts = Counter(map(_ranks_of, far))
    many = {_ranks_of(record) for record in far if len(record.ranks["rank"]) >= SEVERAL}
    return any(count >= (2 if ranks in many else FEW) for ranks, count in counts.items())


def _ranks_of(record: Record) -> tuple[Any, ...]:
    """Of all trials; of a single one also among copies and in its class, since one rank may be the same by chance."""
    own = record.ranks["rank"]
    return tuple(own) if len(own) > 1 else tuple(sorted((name, *ranks) for name, ranks in record.ranks.items()))


def _is_far(record: Record) -> bool:
    """Whether its ranks are not all among the first tenth, where those of a good guesser are."""
    return max(record.ranks["rank"]) > record.ranks["candidates"][0] // HIGH
