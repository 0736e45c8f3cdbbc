"""What DICOM and NIfTI files have in common. Sizes are checked against the bytes that are there before any is read."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from gradveil.core.errors import ConfigError

DICOM, NIFTI = (".dcm", ".dicom"), (".nii", ".nii.gz")
MEDICAL = (*DICOM, *NIFTI)
MOST_VALUES = 2**27  # numbers of a volume


def suffix_of(name: str) -> str:
    """In lower case, `.nii.gz` as one."""
    name = name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else PurePosixPath(name).suffix


def import_reader(library: str, where: Path | str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise ConfigError(f"{where}: needs {library}, install it: pip install 'gradveil[medical]'") from error


@contextmanager
def name_faults(where: Path | str, kind: str) -> Iterator[None]:
    """Whatever a reader raises on bytes made to confuse it, as one line."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"{where}: damaged or not a {kind} file ({type(error).__name__}: {reason}), export it again"
        ) from error


def check_plane(plane: int | None, count: int, where: Path | str) -> int:
    """The slice or frame that is asked for; the middle one where nobody asks."""
    if plane is None:
        return count // 2
    if not 0 <= plane < count:
        raise ConfigError(f"{where}: has {count} slices, plane is {plane}, choose 0 to {count - 1}")
    return plane
