"""One tensor's numbers as bytes, four ways. Each gives back the same bits; a way that cannot says None."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gradveil.wire.entropy import pack, unpack
from gradveil.wire.reader import Reader, malformed, varint, varints

MOST_LEVELS = 2**15 - 1
MOST_VALUES = 2**12
MOST_TIMES = 4  # steps that the smallest magnitude may be


def bits_of(values: np.ndarray) -> np.ndarray:
    """The numbers as whole numbers: equal only if every bit is, so that -0.0 is not 0.0."""
    return values.view(f"<u{values.itemsize}")


def dense(values: np.ndarray, bucket: int) -> bytes:
    """Every number as it is."""
    return values.tobytes()


def read_dense(reader: Reader, kind: np.dtype, count: int) -> np.ndarray:
    return reader.array(kind, count)


def sparse(values: np.ndarray, bucket: int) -> bytes:
    """Where the numbers are that are not zero, and those numbers: a bitmap, or the gaps between them."""
    there = bits_of(values) != 0
    places = np.flatnonzero(there)
    gaps = bytes([1]) + varints(np.diff(places, prepend=-1) - 1)
    bitmap = bytes([0]) + pack(there.astype(np.int64), 2)
    return varint(len(places)) + min(gaps, bitmap, key=len) + values[places].tobytes()


def read_sparse(reader: Reader, kind: np.dtype, count: int) -> np.ndarray:
    length, form = reader.varint(count, "a number of places"), reader.take(1)[0]
    if form == 1:
        gaps = reader.varints(length)
        if length and int(gaps.max()) >= count:
            raise malformed("a place is out of range")
        places = np.cumsum(gaps.astype(np.int64) + 1) - 1
    elif form == 0:
        places = np.flatnonzero(unpack(reader, count, 2))
    else:
        raise malformed(f"places of kind {form}")
    if len(places) != length or (length and int(places[-1]) >= count):
        raise malformed("places do not add up")
    values = np.zeros(count, kind)
    values[places] = reader.array(kind, length)
    return values


def levels(values: np.ndarray, bucket: int) -> bytes | None:
    """A step for every bucket and whole multiples of it: quantizers, and the sign of everything."""
    size = max(min(bucket or len(values), len(values)), 1)
    buckets = np.pad(values, (0, -len(values) % size)).reshape(-1, size)
    step, found = np.zeros((len(buckets), 1), values.dtype), np.zeros(len(buckets), bool)
    for candidate in steps_of(buckets):
        fits = ~found & (bits_of(multiples(buckets, candidate) * candidate + 0) == bits_of(buckets)).all(1)
        step[fits], found = candidate[fits], found | fits
    level = multiples(buckets, step).ravel()[: len(values)]
    if not found.all():
        return None
    highest = int(np.abs(level).max(initial=0))
    return varint(size) + varint(highest) + step.tobytes() + pack(level.astype(np.int64) + highest, 2 * highest + 1)


def steps_of(buckets: np.ndarray) -> Iterator[np.ndarray]:
    """What the step may have been, [bucket, 1]: the smallest magnitude is one step, or a few, within rounding."""
    size = np.abs(buckets)
    least = np.where(size > 0, size, np.inf).min(1, keepdims=True)
    least = np.where(np.isfinite(least), least, 0).astype(buckets.dtype)
    for times in range(1, MOST_TIMES + 1):
        step = least / buckets.dtype.type(times)
        yield from (step, np.nextafter(step, 0), np.nextafter(step, np.inf, dtype=step.dtype))


def multiples(buckets: np.ndarray, step: np.ndarray) -> np.ndarray:
    """How many steps each number is; NaN where that cannot be."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        level = np.where(step > 0, np.rint(buckets / step), 0)
    return np.where(np.abs(level) <= MOST_LEVELS, level, np.nan).astype(buckets.dtype)


def read_levels(reader: Reader, kind: np.dtype, count: int) -> np.ndarray:
    size = reader.varint(max(count, 1), "a bucket")
    if not size:
        raise malformed("a bucket is empty")
    highest = reader.varint(MOST_LEVELS, "a level")
    step = np.repeat(reader.array(kind, -(-count // size)), size)[:count]
    level = unpack(reader, count, 2 * highest + 1).astype(np.int64) - highest
    return level.astype(kind) * step + 0  # a level of zero times a step is 0.0, not -0.0


def palette(values: np.ndarray, bucket: int) -> bytes | None:
    """The different numbers, and which of them stands where."""
    different, symbols = np.unique(bits_of(values), return_inverse=True)
    if len(different) > MOST_VALUES:
        return None
    return varint(len(different)) + different.tobytes() + pack(symbols.reshape(-1), len(different))


def read_palette(reader: Reader, kind: np.dtype, count: int) -> np.ndarray:
    length = reader.varint(MOST_VALUES, "a palette")
    if count and not length:
        raise malformed("a palette is empty")
    different = reader.array(kind, length)
    symbols = unpack(reader, count, length)
    return different[symbols] if count else np.zeros(0, kind)


@dataclass(frozen=True)
class Form:
    write: Callable[[np.ndarray, int], bytes | None]
    read: Callable[[Reader, np.dtype, int], np.ndarray]


FORMS = {  # by name; a form's number in a message is its place
    "dense": Form(dense, read_dense),
    "sparse": Form(sparse, read_sparse),
    "levels": Form(levels, read_levels),
    "palette": Form(palette, read_palette),
}
