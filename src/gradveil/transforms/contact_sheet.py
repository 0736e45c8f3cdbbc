"""Every entry of a library on one picture, with its number and name: a contact sheet."""

from __future__ import annotations

from PIL import Image, ImageDraw
from torch import Tensor

from gradveil.transforms.library import Entry, Library
from gradveil.transforms.picture import to_picture
from gradveil.transforms.policy import Policy

COLUMNS, GAP, LINE = 5, 8, 14
PAPER, INK = "white", "black"


def contact_sheet(library: Library, picture: Tensor) -> Image.Image:
    """One cell per entry: as drawn with a plus and, where the sign matters, with a minus beside it."""
    height, width = picture.shape[-2:]
    cell_width, cell_height = 2 * width + 2 * GAP, height + LINE + 2 * GAP
    rows = -(-len(library.entries) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * cell_width + GAP, rows * cell_height + GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    for place in range(len(library.entries)):
        left, top = GAP + place % COLUMNS * cell_width, GAP + place // COLUMNS * cell_height
        policy = Policy(library, ((place,),))
        for shown, (choice, signs) in enumerate(policy.draws()):
            sheet.paste(to_picture(policy.apply_one(picture, choice, signs)), (left + shown * (width + 2), top))
        pen.text((left, top + height + 2), caption(library, place), fill=INK)
    return sheet


def caption(library: Library, place: int) -> str:
    """`3 translateX9: +-0.453`, or what it is the same as."""
    entry, first = library.entries[place], library.alike[place]
    effect = "identity" if first is None else f"same as {first}" if first != place else amount_of(entry)
    return f"{place} {entry}: {effect}" if effect else f"{place} {entry}"


def amount_of(entry: Entry) -> str:
    """The magnitude in the operation's own units, nothing where it has none.

    >>> amount_of(Entry("translateX", 9)), amount_of(Entry("solarize", 4)), amount_of(Entry("invert", 7))
    ('+-0.453', '142', '')
    """
    if not any(entry.does.amounts):
        return ""
    return f"{'+-' if entry.is_signed else ''}{entry.amount:.3g}"
