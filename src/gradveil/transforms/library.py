"""Libraries: numbered transformations, each an operation at one of ten magnitudes, out of which policies are made.

`ats-code` is the list in the public code of ATS (Gao et al., 2021), `ats-paper` the one that the journal version prints
as table 1. They differ at three numbers, of which two matter: see `PRINTED`. Each entry of theirs has a probability
beside it that their code never reads, so it is left out here: an entry is always applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gradveil.core.errors import ConfigError, unknown
from gradveil.core.toml import read_toml
from gradveil.transforms.operation import OPERATIONS, Operation

MAGNITUDES = 10
MOST = 1000  # entries
TEXT = re.compile(r"([A-Za-z]+)([0-9]+)")
LEAVES_ALONE = {"posterize": 8.0, "solarize": 256.0}  # all bits kept, and no level above the threshold
Spec = str | tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """One transformation: `translateX9` is a shift by the last of its ten magnitudes.

    >>> Entry.parse("translateX9", "mine"), str(Entry("rotate", 2))
    (Entry(operation='translateX', magnitude=9), 'rotate2')
    """

    operation: str
    magnitude: int

    @classmethod
    def parse(cls, text: str, where: str) -> Entry:
        found = TEXT.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{where}: expected an operation and its magnitude such as translateX9, got {text!r:.100}"
            )
        return cls(found[1], int(found[2][:3])).check(where)

    def check(self, where: str) -> Entry:
        if self.operation not in OPERATIONS:
            raise unknown("operation", self.operation, OPERATIONS, f"{where}: operation")
        if not 0 <= self.magnitude < MAGNITUDES:
            raise ConfigError(f"{where}: magnitude {self.magnitude} is out of range, take 0 to {MAGNITUDES - 1}")
        return self

    @property
    def does(self) -> Operation:
        return OPERATIONS[self.operation]

    @property
    def amount(self) -> float:
        """The magnitude in the operation's own units."""
        return self.does.amounts[self.magnitude]

    @property
    def is_signed(self) -> bool:
        """Whether the sign that is drawn makes a difference."""
        return self.does.signed and self.amount != 0

    @property
    def function(self) -> tuple[str, float] | None:
        """What it does, whatever magnitude is written: entries with the same one are the same; None is the identity."""
        idle = LEAVES_ALONE.get(self.operation, 0.0 if any(self.does.amounts) else None)
        return None if self.amount == idle else (self.operation, self.amount)

    def __str__(self) -> str:
        return f"{self.operation}{self.magnitude}"


@dataclass(frozen=True)
class Library:
    """Numbered transformations. A policy names them by their place, from 0."""

    name: str
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.entries) <= MOST:
            raise ConfigError(f"{self.name}: a library of {len(self.entries)} entries, expected 1 to {MOST:,}")

    @property
    def spec(self) -> Spec:
        """What `library_of` makes the same of without any file: a name of the table, or all entries."""
        known = LIBRARIES.get(self.name)
        return self.name if known == self else tuple(map(str, self.entries))

    @cached_property
    def alike(self) -> tuple[int | None, ...]:
        """For every place the first one with the same function, None where it is the identity."""
        first: dict[tuple[str, float], int] = {}
        functions = [entry.function for entry in self.entries]
        return tuple(None if f is None else first.setdefault(f, place) for place, f in enumerate(functions))


def library_of(spec: Spec | Library) -> Library:
    """A library by name, by the path of a TOML file, or by its entries such as `("translateX9", "contrast6")`.

    >>> str(library_of("ats-code").entries[3])
    'translateX9'
    """
    if isinstance(spec, Library):
        return spec
    if not isinstance(spec, str):
        return of_entries("own", spec)
    if spec in LIBRARIES:
        return LIBRARIES[spec]
    path = Path(spec)
    if path.suffix == ".toml" or len(path.parts) > 1:
        return read_library(path)
    raise unknown("library", spec, [*LIBRARIES, "a path of a .toml file"])


def of_entries(name: str, texts: Iterable[str]) -> Library:
    return Library(name, tuple(Entry.parse(text, f"{name}: entry {place}") for place, text in enumerate(texts)))


def read_library(path: Path) -> Library:
    """A library of one's own: `[[entry]]` tables with `operation` and `magnitude`, in the order of their numbers."""
    raw = read_toml(path)
    for key in raw:
        if key != "entry":
            raise ConfigError(f"{path}: unknown key {key!r:.100}, expected [[entry]] tables alone")
    rows = raw.get("entry")
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: no entries, write [[entry]] tables with operation and magnitude")
    return Library(path.stem, tuple(_entry(row, f"{path}: entry {place}") for place, row in enumerate(rows)))


def _entry(row: Any, where: str) -> Entry:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where}: expected a table, write [[entry]]")
    for key in row:
        if key not in ("operation", "magnitude"):
            raise ConfigError(f"{where}: unknown key {key!r:.100}, known: magnitude, operation")
    return entry_of(row.get("operation"), row.get("magnitude"), where)


def entry_of(operation: Any, magnitude: Any, where: str) -> Entry:
    """What a file says of one entry, checked."""
    if not isinstance(operation, str):
        raise ConfigError(f"{where}: operation is {operation!r:.100}, expected a name such as 'translateX'")
    if not isinstance(magnitude, int) or isinstance(magnitude, bool):
        raise ConfigError(
            f"{where}: magnitude is {magnitude!r:.100}, expected a whole number from 0 to {MAGNITUDES - 1}"
        )
    return Entry(operation, magnitude).check(where)


TENS = (
    "invert7 contrast6 rotate2 translateX9 sharpness1 sharpness3 shearY2 translateY2 autocontrast5 equalize2",
    "shearY5 posterize5 color3 brightness5 sharpness9 brightness9 equalize5 equalize1 contrast7 sharpness5",
    "color5 translateX5 equalize7 autocontrast8 translateY3 sharpness6 brightness6 color8 solarize0 invert0",
    "equalize0 autocontrast0 equalize8 equalize4 color5 equalize5 autocontrast4 solarize4 brightness3 color0",
    "solarize1 autocontrast0 translateY3 translateY3 autocontrast1 solarize1 equalize5 invert0 translateY3"
    " autocontrast1",
)
CODE = [text for ten in TENS for text in ten.split()]
# where the paper prints something else. Its own policy 21-3-16 is three shifts, which it is not in the code
PRINTED = {16: "translateX4", 43: "translateY4", 47: "invert1"}

LIBRARIES = {
    "ats-code": of_entries("ats-code", CODE),
    "ats-paper": of_entries("ats-paper", [PRINTED.get(place, text) for place, text in enumerate(CODE)]),
}
