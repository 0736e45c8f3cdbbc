"""One frame of a DICOM file (extra `medical`), whose pixels are not compressed."""

from __future__ import annotations

import math
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from gradveil.core.errors import ConfigError
from gradveil.data.fit import MAX_PIXELS
from gradveil.data.levels import Range, scale
from gradveil.data.medical import MOST_VALUES, check_plane, import_reader, name_faults

PREAMBLE, MARK = 128, b"DICM"
SYNTAX = (0x0002, 0x0010)
LONG = (b"OB", b"OW", b"OF", b"SQ", b"UT", b"UN")  # kinds of elements with a length of four bytes
PLAIN = {"1.2.840.10008.1.2": "<", "1.2.840.10008.1.2.1": "<", "1.2.840.10008.1.2.2": ">"}  # order of bytes
GRAY, COLOR = ("MONOCHROME1", "MONOCHROME2"), ("RGB",)


def read_dicom(content: bytes, where: Path | str, plane: int | None, limits: Range | None) -> np.ndarray:
    """float32 [row, column, channel] in [0, 1].

    Without `limits` the range of the stored bits becomes [0, 1]. With them numbers are first what Rescale Slope and
    Intercept make of them, such as Hounsfield units.
    """
    pydicom = import_reader("pydicom", where)
    with name_faults(where, "DICOM"):
        order = _order(_transfer_syntax(content), where)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes on odd metadata concern nobody
            file = pydicom.dcmread(BytesIO(content))
            return _pixels(file, order, where, plane, limits)


def _transfer_syntax(content: bytes) -> str:
    """Read by hand: the reader itself would inflate a deflated file, however large it becomes."""
    if content[PREAMBLE : PREAMBLE + 4] != MARK:
        raise ValueError("it has no DICM mark")
    place = PREAMBLE + 4
    while place + 12 <= len(content):
        group, element = (int.from_bytes(content[at : at + 2], "little") for at in (place, place + 2))
        if group != SYNTAX[0]:
            break
        long = content[place + 4 : place + 6] in LONG
        start = place + (12 if long else 8)
        length = int.from_bytes(content[place + 8 : start] if long else content[place + 6 : start], "little")
        if (group, element) == SYNTAX:
            return content[start : start + min(length, 64)].decode("ascii").rstrip("\0 ")
        place = start + length
    raise ValueError("it does not say how its pixels are stored")


def _order(syntax: str, where: Path | str) -> str:
    if syntax not in PLAIN:
        raise ConfigError(
            f"{where}: its pixels are compressed (transfer syntax {syntax[:40]!r}), decompress it first (gdcmconv)"
        )
    return PLAIN[syntax]


def _pixels(file: Any, order: str, where: Path | str, plane: int | None, limits: Range | None) -> np.ndarray:
    rows, columns = (_whole(file, name, 1, 65535, where) for name in ("Rows", "Columns"))
    samples = _whole(file, "SamplesPerPixel", 1, 3, where, 1)
    bits = _whole(file, "BitsAllocated", 8, 16, where)
    frames = _whole(file, "NumberOfFrames", 1, MOST_VALUES, where, 1)
    stored = _whole(file, "BitsStored", 1, bits, where, bits)
    kind = str(file.get("PhotometricInterpretation", ""))[:40]
    if rows * columns > MAX_PIXELS or rows * columns * samples * frames > MOST_VALUES:
        size = f"{frames} frames of {rows}x{columns}"
        raise ConfigError(f"{where}: claims {size}, the limit is {MAX_PIXELS:,} pixels a frame, make it smaller")
    if bits not in (8, 16) or kind not in (GRAY if samples == 1 else COLOR):
        problem = f"{bits} bits, {samples} samples, {kind!r}"
        raise ConfigError(f"{where}: is of {problem}; 8 or 16 bits of gray or RGB are read, export it so")
    content = _content(file, rows * columns * samples * bits // 8, frames, where)
    chosen = check_plane(plane, frames, where)
    raw = np.frombuffer(content, f"{order}u{bits // 8}").reshape(frames, -1)[chosen]
    values = _as_stored(raw, stored, bool(_whole(file, "PixelRepresentation", 0, 1, where, 0)))
    by_plane = samples > 1 and _whole(file, "PlanarConfiguration", 0, 1, where, 0)
    shaped = (
        values.reshape(samples, rows, columns).transpose(1, 2, 0) if by_plane else values.reshape(rows, columns, -1)
    )
    found = _scaled(file, shaped, stored, where, limits)
    return 1 - found if kind == "MONOCHROME1" else found


def _content(file: Any, each: int, frames: int, where: Path | str) -> bytes:
    content = file.get("PixelData", b"")
    if not isinstance(content, bytes) or len(content) not in (frames * each, frames * each + frames * each % 2):
        held = len(content) if isinstance(content, bytes) else 0
        raise ConfigError(f"{where}: claims {frames * each:,} bytes of pixels and holds {held:,}, export it again")
    return content[: frames * each]


def _as_stored(raw: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    """Without what lies above the stored bits."""
    values = raw.astype(np.int32) & ((1 << bits) - 1)
    return values - ((values >> (bits - 1)) << bits) if signed else values


def _scaled(file: Any, values: np.ndarray, bits: int, where: Path | str, limits: Range | None) -> np.ndarray:
    if limits is None:
        low = -(1 << (bits - 1)) if _whole(file, "PixelRepresentation", 0, 1, where, 0) else 0
        return scale(values, (float(low), float(low + (1 << bits) - 1)))
    slope, intercept = (_number(file, f"Rescale{name}", default, where) for name, default in RESCALE)
    return scale(values * slope + intercept, limits)


RESCALE = (("Slope", 1.0), ("Intercept", 0.0))


def _whole(file: Any, name: str, low: int, high: int, where: Path | str, default: int | None = None) -> int:
    value = file.get(name, default)
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{where}: {name} is {str(value)[:40]!r}, no whole number; export it again") from None
    if not low <= number <= high:
        raise ConfigError(f"{where}: {name} is {number}, expected {low} to {high:,}; export it again")
    return number


def _number(file: Any, name: str, default: float, where: Path | str) -> float:
    value = file.get(name, default)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) < 1e12:
        raise ConfigError(f"{where}: {name} is {str(value)[:40]!r}, no finite number; export it again")
    return number
