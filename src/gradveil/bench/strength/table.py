"""The table: every attack beside `autoattack` and a blank picture, with the rows in which `autoattack` loses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean
from typing import Any

from gradveil.bench.strength.contest import OURS, Entry
from gradveil.tradeoff.estimates import Between, of_trainings

EXACT = 80.0  # dB: a tenth of what 8 bits can tell apart is 79
COLUMNS = (
    "setting",
    "attack",
    "PSNR, dB",
    "SSIM",
    "identified",
    "rank, median",
    "blank, dB",
    "seconds",
    "steps",
    "ours minus it, dB",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One attack in one setting. `ahead` is PSNR of autoattack minus its own, by update, with its 95 % interval."""

    setting: str
    entry: Entry
    blank: float
    ahead: Between | None  # None of autoattack itself
    candidates: int  # pictures among which the original is sought, itself included

    @property
    def psnr(self) -> float:
        return mean(_flat(self.entry.psnr))

    @property
    def pictures(self) -> int:
        return len(_flat(self.entry.psnr))

    @property
    def identified(self) -> int:
        return sum(rank == 1 for rank in _flat(self.entry.rank))

    @property
    def loses(self) -> bool:
        """Whether autoattack is below this attack, by the paired interval."""
        return self.ahead is not None and self.ahead.high is not None and self.ahead.high < 0

    def to_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting,
            "attack": self.entry.attack,
            "psnr": self.psnr,
            "blank": self.blank,
            "ssim": mean(_flat(self.entry.ssim)),
            "identified": self.identified,
            "rank": _median(_flat(self.entry.rank)),
            "candidates": self.candidates,
            "pictures": self.pictures,
            "seconds": self.entry.seconds,
            "steps": self.entry.steps,
            "ours_minus_it": self.ahead and self.ahead.to_json(),
            "ours_loses": self.loses,
            "each_psnr": self.entry.psnr,
        }

    def cells(self) -> list[str]:
        seconds = "-" if self.entry.seconds is None else f"{self.entry.seconds:.1f}"
        return [
            self.setting,
            self.entry.attack,
            f"{self.psnr:.1f}",
            f"{mean(_flat(self.entry.ssim)):.2f}",
            f"{self.identified} of {self.pictures}",
            f"{_median(_flat(self.entry.rank)):.0f} of {self.candidates:,}",
            f"{self.blank:.1f}",
            seconds,
            "-" if self.entry.steps is None else str(self.entry.steps),
            _between(self.ahead) + (" (loses)" if self.loses else ""),
        ]


def make_rows(setting: str, entries: Sequence[Entry], blank: Entry, candidates: int) -> list[Row]:
    """Best first; autoattack is compared with each over the same updates."""
    ours = next(entry for entry in entries if entry.attack == OURS)
    found = [
        Row(
            setting=setting,
            entry=entry,
            blank=mean(_flat(blank.psnr)),
            ahead=None if entry is ours else compare(ours, entry),
            candidates=candidates,
        )
        for entry in entries
    ]
    return sorted(found, key=lambda row: -row.psnr)


def compare(ours: Entry, other: Entry) -> Between:
    """Pictures of one update are no independent pairs: differences are means of updates, the interval is Student's.

    Above `EXACT` a picture is the original but for the rounding of what reads it, and no attack is better than another.
    """
    pairs = zip(ours.psnr, other.psnr, strict=True)
    return of_trainings([mean(map(cap, a)) - mean(map(cap, b)) for a, b in pairs])


def cap(psnr: float) -> float:
    return min(psnr, EXACT)


def sentences(rows: Sequence[Row]) -> Iterator[str]:
    """Where autoattack loses, where it is below without the interval saying so, and where it is best."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    lost = [row for row in rows if row.loses]
    below = [row for row in rows if not row.loses and row.ahead is not None and row.ahead.mean < 0]
    for text, some in (("loses to", lost), ("is below, not surely,", below)):
        for row in some:
            yield f"{row.setting}: {OURS} {text} {row.entry.attack} by {_between(row.ahead, -1)} dB"
    best, loses = len(settings) - len({row.setting for row in (*lost, *below)}), len({row.setting for row in lost})
    yield f"{OURS} is the best in {best} of {len(settings)} settings and loses to another in {loses}"


def to_json(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        **about,
        "rows": [row.to_json() for row in rows],
        "loses": [f"{row.setting}: {row.entry.attack}" for row in rows if row.loses],
    }


def _flat(each: Sequence[Sequence[float]]) -> list[float]:
    return list(chain.from_iterable(each))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def _between(value: Between | None, sign: int = 1) -> str:
    if value is None:
        return "-"
    if value.low is None or value.high is None:
        return f"{sign * value.mean:+.1f}"
    low, high = sorted((sign * value.low, sign * value.high))
    return f"{sign * value.mean:+.1f} ({low:+.1f} to {high:+.1f})"
