"""Numbers that a trial can have computed. Others in a journal are refused: no mean or plot has to cope with them."""

from __future__ import annotations

from collections.abc import Iterator

from gradveil.experiment.record import Record

LARGEST = 3.5e38  # more than float32 holds
MOST_EXAMPLES, MOST_SEEDS = 2**31, 2**64
SHOWN = 40  # digits


def is_number(value: float) -> bool:
    """Finite, and not beyond float32."""
    return abs(value) <= LARGEST


def find_absurd(record: Record) -> str:
    """The first number of a record that no trial gives, with its name; empty if all can be.

    A score that is not finite is no error: its trial counts as failed.
    """
    for name, value, sound in _numbers(record):
        if not sound:
            return f"{name} is {str(value)[:SHOWN]}, which no trial gives"
    return ""


def _numbers(record: Record) -> Iterator[tuple[str, float, bool]]:
    for name, value in record.scores.items():
        yield name, value, is_number(value) or value - value != 0  # infinity or NaN
    for name in ("seconds", "loss", "blank"):
        value = getattr(record, name)
        yield name, value, value is None or is_number(value)
    for group in ("explained", "floors", "fed"):
        for name, value in getattr(record, group).items():
            yield f"{group}.{name}", value, is_number(value)
    for name, ranks in record.ranks.items():
        yield f"ranks.{name}", max(ranks, default=1), all(1 <= rank < MOST_EXAMPLES for rank in ranks)
    yield "example", record.example, 0 <= record.example < MOST_EXAMPLES
    yield "seed", record.seed, 0 <= record.seed < MOST_SEEDS
