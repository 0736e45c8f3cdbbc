"""One slice of a NIfTI volume (extra `medical`), `.nii` or `.nii.gz`, as `get_fdata()[:, :, k]` of nibabel gives it."""

from __future__ import annotations

import zlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from gradveil.core.errors import ConfigError
from gradveil.data.levels import Range, scale
from gradveil.data.medical import MOST_VALUES, check_plane, import_reader, name_faults

HEADER, HEADER2 = 348, 540  # bytes
GZIP, GZIP_WINDOW = b"\x1f\x8b", 31
EXPANDS_FREELY, EXPANSION = 2**26, 100  # bytes; beyond them, how many times its stored size a volume may have


def read_nifti(content: bytes, where: Path | str, plane: int | None, limits: Range | None) -> np.ndarray:
    """float32 [first axis, second axis, 1] in [0, 1]; without `limits` the volume's own least and largest number."""
    nibabel = import_reader("nibabel", where)
    with name_faults(where, "NIfTI"):
        header = _header(nibabel, _inflate(content, HEADER2))
        shape, dtype, offset = _sizes(header, where)
        data = _inflate(content, _claimed(content, offset + prod(shape) * dtype.itemsize, where))[offset:]
        if len(data) < prod(shape) * dtype.itemsize:
            claimed = prod(shape) * dtype.itemsize
            raise ConfigError(f"{where}: claims {claimed:,} bytes of voxels and holds {len(data):,}, export it again")
        volume = np.frombuffer(data, dtype, prod(shape)).reshape(shape, order="F")
        slice = _real(header, volume[:, :, check_plane(plane, shape[2], where)])
        limits = limits or _own_range(header, volume, where)
        if not np.isfinite(slice).all():
            raise ConfigError(f"{where}: has numbers that are NaN or infinite, mend the volume")
        return scale(slice, limits)[..., None]


def _inflate(content: bytes, most: int) -> bytes:
    """The first so many bytes, unpacked if they are packed."""
    if content[:2] != GZIP:
        return content[:most]
    return zlib.decompressobj(GZIP_WINDOW).decompress(content, most)


def _header(nibabel: Any, head: bytes) -> Any:
    sizes = {int.from_bytes(head[:4], order) for order in ("little", "big")}  # type: ignore[arg-type]
    if HEADER in sizes:
        return nibabel.Nifti1Header(head[:HEADER], check=False)
    if HEADER2 in sizes:
        return nibabel.Nifti2Header(head[:HEADER2], check=False)
    raise ValueError("it has no NIfTI header")


def _sizes(header: Any, where: Path | str) -> tuple[tuple[int, int, int], np.dtype, int]:
    if bytes(header["magic"].tobytes()[:3]) not in (b"n+1", b"n+2"):
        raise ConfigError(f"{where}: its voxels lie in another file, save header and voxels as one .nii")
    dims = [int(side) for side in header["dim"]]
    if not 2 <= dims[0] <= 7 or min(dims[1 : dims[0] + 1]) < 1 or max(dims[4 : dims[0] + 1], default=1) > 1:
        raise ConfigError(f"{where}: has the dimensions {dims[:8]}, expected one volume; save it alone")
    shape = (dims[1], dims[2], dims[3] if dims[0] > 2 else 1)
    if prod(shape) > MOST_VALUES:
        size = "x".join(map(str, shape))
        raise ConfigError(f"{where}: claims {size} voxels, the limit is {MOST_VALUES:,}, save a part of it")
    dtype, offset = header.get_data_dtype(), float(header["vox_offset"])
    if dtype.kind not in "uif" or dtype.itemsize > 8:
        raise ConfigError(f"{where}: its voxels are {str(dtype)[:40]}, expected plain numbers; save them so")
    if not HEADER <= offset <= 2**24:
        raise ConfigError(f"{where}: its voxels begin at byte {offset:g}, which is not possible, export it again")
    return shape, dtype, int(offset)


def _claimed(content: bytes, claimed: int, where: Path | str) -> int:
    """The bytes of the whole file, if it may have so many."""
    if content[:2] == GZIP and claimed > EXPANDS_FREELY and claimed > EXPANSION * len(content):
        raise ConfigError(
            f"{where}: would grow from {len(content):,} to {claimed:,} bytes, more than {EXPANSION} times; "
            "save it as .nii if it is really so"
        )
    return claimed


def _real(header: Any, values: np.ndarray) -> np.ndarray:
    slope, intercept = header.get_slope_inter()
    return values.astype(np.float64) * (1.0 if slope is None else slope) + (0.0 if intercept is None else intercept)


def _own_range(header: Any, volume: np.ndarray, where: Path | str) -> Range:
    ends = _real(header, np.array([volume.min(), volume.max()]))
    low, high = float(ends.min()), float(ends.max())
    if not np.isfinite(ends).all():
        raise ConfigError(f"{where}: has numbers that are NaN or infinite, mend the volume")
    return (low, high) if low < high else (low, low + 1)
