"""The records of a run as CSV, for those who compute with them.

What depends on the machine or on interruptions (seconds, back end, notes) is left out: one audit, one table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from gradveil.experiment.record import Record

FORMULA = ("=", "+", "-", "@")  # a spreadsheet runs a cell that begins so
NAMES = ("key", "status", "scenario", "defense", "attack", "attacker", "control", "client")  # text, fields of a record
NUMBERS = ("example", "seed", "loss", "blank")  # blank: dB of the mean public picture
DOUBTS = ("flags", "reason")


def as_csv(records: Iterable[Record]) -> str:
    """A line of column names, then one line per record, ordered by key."""
    records = list(records)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_text(name) for name in columns(records)])
    writer.writerows(rows(records))
    return text.getvalue()


def columns(records: Iterable[Record]) -> list[str]:
    return [*NAMES, *NUMBERS, *_score_names(records), *_rank_names(records), *DOUBTS]


def rows(records: Iterable[Record]) -> list[list[str]]:
    """The cells of each record below `columns`; what a record does not have is empty."""
    records = list(records)
    scores, ranks = _score_names(records), _rank_names(records)
    return [row for _, row in sorted((record.key, _row(record, scores, ranks)) for record in records)]


def _score_names(records: Iterable[Record]) -> list[str]:
    return sorted({name for record in records for name in record.scores})


def _rank_names(records: Iterable[Record]) -> list[str]:
    """Of line-ups; there are no such columns without one."""
    return sorted({name for record in records for name in record.ranks})


def _row(record: Record, scores: Sequence[str], ranks: Sequence[str]) -> list[str]:
    return [
        *(_text(getattr(record, name)) for name in NAMES),
        str(record.example),
        str(record.seed),
        _number(record.loss),
        _number(record.blank),
        *(_number(record.scores.get(name)) for name in scores),
        *(";".join(map(str, record.ranks.get(name, ()))) for name in ranks),
        _text(";".join(record.flags)),
        _text(record.reason),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _text(text: str) -> str:
    """On one line, and never a formula."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    risky = text.startswith(("\t", "\r")) or plain.lstrip().startswith(FORMULA)
    return f"'{plain}" if risky else plain
