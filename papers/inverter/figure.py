"""The picture of docs/findings/learned-inverter.md: rows of the sheets that `study.py` has drawn.

python3 papers/inverter/figure.py SIZES.png DEFENSES.png docs/images/learned-inverter.png
"""

from __future__ import annotations

import sys

from PIL import Image, ImageDraw
from sheet import GAP, SCALE, SHOWN, TEXT

ROW, LABEL, COLORS = 32 * SCALE + GAP, 230, 160
CELLS = ("none", "gaussian", "prune", "sign", "dpsgd")  # of part 2, in their order; each has six rows
CHOSEN = (  # sheet, row, label
    ("sizes", 0, "original"),
    ("sizes", 10, "class mean"),
    ("defenses", 2, "ResNet20: search"),
    ("sizes", 1, "ResNet20: 20,000 updates"),
    ("sizes", 6, "ResNet20: 346,840 updates"),
    ("defenses", 3, "ResNet20: search from the short one"),
    *(
        ("defenses", 4 + 6 * CELLS.index(defense) + row, f"LeNet, {defense}: {attack}")
        for defense in CELLS
        for row, attack in enumerate(("inverter", "search"))
    ),
)


def main() -> None:
    sheets = {name: Image.open(path) for name, path in zip(("sizes", "defenses"), sys.argv[1:3], strict=True)}
    figure = Image.new("RGB", (LABEL + SHOWN * ROW, len(CHOSEN) * ROW), "white")
    pen = ImageDraw.Draw(figure)
    for place, (sheet, row, label) in enumerate(CHOSEN):
        pen.text((4, place * ROW + ROW // 2 - 6), label, fill="black")
        strip = sheets[sheet].crop((TEXT, row * ROW, TEXT + SHOWN * ROW, (row + 1) * ROW))
        figure.paste(strip, (LABEL, place * ROW))
    figure.quantize(COLORS).save(sys.argv[3], optimize=True)


if __name__ == "__main__":
    main()
