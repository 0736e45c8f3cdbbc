"""Feed a contract with inputs that a seed decides, until one breaks it or there were enough."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence

One = Callable[[random.Random], None]


def fuzz(one: One, *, count: int, seconds: float = float("inf"), seed: int = 0) -> int:
    """How many inputs kept the contract. The first that breaks it is raised, with the seed that makes it again."""
    end = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > end:
            return number
        try:
            one(random.Random(seed + number))
        except BaseException as error:
            error.add_note(f"again: --seed {seed + number} --count 1")
            raise
    return count


def main(one: One, name: str, arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog=name, description=(one.__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="inputs (default 1000)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=0, help="of the first input (default 0)")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    done = fuzz(one, count=options.count, seconds=options.seconds, seed=options.seed)
    print(f"{name}: {done:,} inputs in {time.monotonic() - start:.0f} s, none broke the contract", file=sys.stderr)


def must(holds: bool, message: str) -> None:
    """A line of a contract."""
    if not holds:
        raise AssertionError(message)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, removed, added, doubled or moved."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        begin = rng.randrange(len(found) + 1)
        end = min(len(found), begin + rng.choice((0, 1, 1, 2, 8, 64, 512)))
        piece = bytes(found[begin:end])
        found[begin:end] = rng.choice(
            (b"", piece + piece, piece[::-1], rng.randbytes(len(piece) or 1), rng.choice(TROUBLE), flipped(piece, rng))
        )
    return bytes(found)


def flipped(piece: bytes, rng: random.Random) -> bytes:
    if not piece:
        return b"\n"
    place = rng.randrange(len(piece))
    return piece[:place] + bytes([piece[place] ^ 1 << rng.randrange(8)]) + piece[place + 1 :]


TROUBLE = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"'", b'"', b'"""', b"[", b"]", b"{", b"}", b"=", b".", b"#",
    b",", b"nan", b"inf", b"1e999", b"9" * 400, b"0x" + b"f" * 300, b"-0", b"1979-05-27", b"[" * 300, b"a." * 300,
    b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"../", b"__class__", b"\x1b[2J", b"\xe2\x80\xae",
)  # fmt: skip
