"""Bytes from somebody else, read from front to back: what is not there or makes no sense is a ConfigError."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradveil.core.errors import ConfigError

LONGEST_VARINT = 9  # bytes: 63 bits


def malformed(what: str) -> ConfigError:
    return ConfigError(f"encoded update: {what}, expected the bytes that gradveil.wire.encode gave")


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def varints(numbers: np.ndarray) -> bytes:
    """Many at once: byte k of every number that has one, in the order of the numbers."""
    numbers = numbers.astype(np.uint64)
    lengths = np.maximum(1, np.ceil(np.log2(numbers.astype(np.float64) + 1) / 7)).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), np.uint8)
    for k in range(int(lengths.max(initial=0))):
        has = lengths > k
        more = (lengths[has] > k + 1).astype(np.uint8) << 7
        out[starts[has] + k] = ((numbers[has] >> np.uint64(7 * k)) & np.uint64(127)).astype(np.uint8) | more
    return out.tobytes()


@dataclass
class Reader:
    """A place in the bytes."""

    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise malformed("ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self, most: int, what: str) -> int:
        number = 0
        for place in range(LONGEST_VARINT):
            byte = self.take(1)[0]
            number |= (byte & 127) << (7 * place)
            if byte < 128:
                if number > most:
                    raise malformed(f"{what} is {number}, more than {most}")
                return number
        raise malformed(f"{what} has too many digits")

    def array(self, kind: np.dtype, count: int) -> np.ndarray:
        return np.frombuffer(self.take(count * kind.itemsize), kind)

    def varints(self, count: int) -> np.ndarray:
        """`count` numbers written by `varints`."""
        rest = np.frombuffer(self.data, np.uint8, offset=self.at)
        ends = np.flatnonzero(rest < 128)[:count]
        if len(ends) < count:
            raise malformed("ends early")
        used = rest[: int(ends[-1]) + 1] if count else rest[:0]
        starts = np.concatenate([[0], ends[:-1] + 1]) if count else ends
        if count and int((ends - starts).max()) >= LONGEST_VARINT:
            raise malformed("a number has too many digits")
        place = np.arange(len(used)) - np.repeat(starts, ends - starts + 1)
        digits = (used & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
        self.at += len(used)
        return np.add.reduceat(digits, starts) if count else digits

    def end(self) -> None:
        if self.at != len(self.data):
            raise malformed(f"has {len(self.data) - self.at} bytes too many")
