"""`gradveil list transforms`: the entries of a library, as text, as JSON and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIZE = 96  # pixels of a picture on the sheet


def transform_rows(library: str) -> list[dict[str, Any]]:
    """One row per entry, as the other tables have them."""
    from gradveil.defenses.ats import PAPER
    from gradveil.transforms.library import library_of

    found = library_of(library)
    return [
        {
            "name": str(entry),
            "paper": str(PAPER),
            "summary": entry.does.summary,
            "options": {
                "index": place,
                "operation": entry.operation,
                "magnitude": entry.magnitude,
                "amount": entry.amount,
                "signed": entry.is_signed,
                "same_as": found.alike[place],
            },
        }
        for place, entry in enumerate(found.entries)
    ]


def transform_lines(library: str) -> list[str]:
    """Number, name, amount and what it does; entries that are the same function say so."""
    from gradveil.transforms.contact_sheet import amount_of
    from gradveil.transforms.library import library_of

    found = library_of(library)
    lines = []
    for place, (entry, first) in enumerate(zip(found.entries, found.alike, strict=True)):
        same = " (the identity)" if first is None else f" (same as {first})" if first != place else ""
        lines.append(f"{place:4}  {entry!s:14} {amount_of(entry):8} {entry.does.summary}{same}")
    return lines


def write_pictures(library: str, file: Path) -> None:
    """A contact sheet of the library."""
    from gradveil.core.errors import ConfigError
    from gradveil.data.photos import photos
    from gradveil.transforms.contact_sheet import contact_sheet
    from gradveil.transforms.library import library_of

    if file.suffix.lower() != ".png":
        raise ConfigError(f"--pictures: {file}: expected a file name that ends in .png")
    contact_sheet(library_of(library), photos(size=SIZE, limit=1).images[0]).save(file)
