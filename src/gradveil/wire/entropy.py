"""Symbols as bytes, near their entropy: range asymmetric numeral systems (Duda, 2013), many lanes side by side.

Symbols are dealt out over the lanes row by row, so that a row is one step for all lanes. Frequencies are part of the
bytes. Where there are too many different symbols for that, each gets its bits.
"""

from __future__ import annotations

import numpy as np

from gradveil.wire.reader import Reader, malformed, varint, varints

PRECISION = 14  # bits of a frequency
TOTAL = 1 << PRECISION
LOWEST = 1 << 16  # of a lane's state, which has 32 bits and is shifted out 16 at a time
MOST_SYMBOLS = 1 << 10  # for frequencies; beyond, bits
ROWS, MOST_LANES = 4096, 1024  # a lane costs four bytes
PLAIN, CODED = 0, 1


def pack(symbols: np.ndarray, alphabet: int) -> bytes:
    """Whole numbers below `alphabet`, the shorter way."""
    plain = bytes([PLAIN]) + _bits(symbols, alphabet)
    if alphabet > MOST_SYMBOLS or not len(symbols):
        return plain
    coded = bytes([CODED]) + _encode(symbols, alphabet)
    return min(plain, coded, key=len)


def unpack(reader: Reader, count: int, alphabet: int) -> np.ndarray:
    form = reader.take(1)[0]
    if form == PLAIN:
        return _from_bits(reader, count, alphabet)
    if form == CODED and alphabet <= MOST_SYMBOLS and count:
        return _decode(reader, count, alphabet)
    raise malformed(f"symbols of kind {form}")


def width_of(alphabet: int) -> int:
    return max(alphabet - 1, 0).bit_length()


def _bits(symbols: np.ndarray, alphabet: int) -> bytes:
    bits = np.empty((len(symbols), width_of(alphabet)), np.uint8)
    for place in range(bits.shape[1]):
        bits[:, place] = symbols >> place & 1
    return np.packbits(bits).tobytes()


def _from_bits(reader: Reader, count: int, alphabet: int) -> np.ndarray:
    width = width_of(alphabet)
    packed = reader.array(np.dtype(np.uint8), -(-count * width // 8))
    bits = np.unpackbits(packed, count=count * width).reshape(count, width)
    symbols = np.zeros(count, np.int64)
    for place in range(width):
        symbols |= bits[:, place].astype(np.int64) << place
    if count and int(symbols.max()) >= alphabet:
        raise malformed("a symbol is out of range")
    return symbols


def frequencies(symbols: np.ndarray, alphabet: int) -> np.ndarray:
    """Out of `TOTAL`; none that occurs is zero."""
    counts = np.bincount(symbols, minlength=alphabet)
    share = np.maximum(counts * TOTAL // len(symbols), counts > 0)
    share[share.argmax()] += TOTAL - share.sum()  # the largest bears the rounding of all
    while share.min() < 0 or ((share <= 0) & (counts > 0)).any():
        share[share.argmin()] += 1
        share[share.argmax()] -= 1
    return share.astype(np.uint64)


def _lanes(count: int) -> int:
    return min(max(count // ROWS, 1), MOST_LANES)


def _encode(symbols: np.ndarray, alphabet: int) -> bytes:
    share, lanes = frequencies(symbols, alphabet), _lanes(len(symbols))
    below = np.cumsum(share) - share
    rows = np.pad(symbols, (0, -len(symbols) % lanes), constant_values=int(share.argmax())).reshape(-1, lanes)
    state, words = np.full(lanes, LOWEST, np.uint64), []
    for row in rows[::-1]:
        often = share[row]
        full = state >= often << np.uint64(32 - PRECISION)
        words.append((state[full] & np.uint64(0xFFFF)).astype("<u2"))
        state = np.where(full, state >> np.uint64(16), state)
        state = (state // often << np.uint64(PRECISION)) + state % often + below[row]
    body = np.concatenate(words[::-1])
    return varints(share) + state.astype("<u4").tobytes() + varint(len(body)) + body.tobytes()


def _decode(reader: Reader, count: int, alphabet: int) -> np.ndarray:
    share, lanes = reader.varints(alphabet), _lanes(count)
    if int(share.max()) > TOTAL or int(share.sum()) != TOTAL:
        raise malformed("frequencies do not add up")
    below, owner = np.cumsum(share) - share, np.repeat(np.arange(alphabet), share.astype(np.int64))
    state = reader.array(np.dtype("<u4"), lanes).astype(np.uint64)
    length = reader.varint(2 * count + lanes, "a number of words")
    body = reader.array(np.dtype("<u2"), length).astype(np.uint64)
    rows, used = np.empty((-(-count // lanes), lanes), np.int64), 0
    for row in rows:
        slot = state & np.uint64(TOTAL - 1)
        row[:] = owner[slot.astype(np.int64)]
        state = share[row] * (state >> np.uint64(PRECISION)) + slot - below[row]
        empty = state < LOWEST
        needed = int(empty.sum())
        if used + needed > length:
            raise malformed("words are missing")
        state[empty] = state[empty] << np.uint64(16) | body[used : used + needed]
        used += needed
    if used != length or (state != LOWEST).any():
        raise malformed("words are left over")
    return rows.reshape(-1)[:count]
