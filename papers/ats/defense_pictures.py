"""What attacks rebuilt under each defense of a run, by who does not know it and by who does, on one labeled sheet.

    gradveil audit --data photos --model lenet --images 6 --draw first --attack invertgrad:steps=600,tv=0.01 \\
        --defense none --defense sign --out RUN
    PYTHONPATH=src python3 papers/ats/defense_pictures.py RUN sheet.jpg

Rows in the order of the run: the originals, then every defense by every attacker, with the mean PSNR of the row.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from gradveil.audit.results import Run, read_run
from gradveil.experiment.record import Record

SIDE, GAP, MARGIN = 64, 3, 160  # pixels


def main() -> None:
    folder, out = map(Path, sys.argv[1:3])
    run = read_run(folder)
    rows = rows_of(run)
    sheet = Image.new(
        "RGB", (MARGIN + max(len(x) for x in rows.values()) * (SIDE + GAP), len(rows) * (SIDE + GAP)), "white"
    )
    draw = ImageDraw.Draw(sheet)
    for place, (label, pictures) in enumerate(rows.items()):
        top = place * (SIDE + GAP)
        draw.text((4, top + SIDE // 2 - 12), label, fill="black", font_size=12)
        for column, picture in enumerate(pictures):
            sheet.paste(shown(picture), (MARGIN + column * (SIDE + GAP), top))
    sheet.save(out, quality=82)


def rows_of(run: Run) -> dict[str, list[np.ndarray]]:
    """Pictures by label; the originals are those of the first row."""
    found: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in run.records:
        if not record.control and run.scenarios.get(record.scenario, {}).get("role", "audited") == "audited":
            found[record.defense, record.attacker].append(record)
    first = sorted(next(iter(found.values())), key=lambda record: record.client)
    rows = {"original": [pictures.original for one in first if (pictures := run.pictures(one)) is not None]}
    for (defense, attacker), records in found.items():
        records.sort(key=lambda record: record.client)
        mean = np.mean([record.scores["psnr"] for record in records])
        label = f"{defense}\n{attacker}, {mean:.1f} dB"
        rows[label] = [pictures.reconstructed for one in records if (pictures := run.pictures(one)) is not None]
    return {label: [picture for picture in row if picture is not None] for label, row in rows.items()}


def shown(picture: np.ndarray) -> Image.Image:
    levels = (picture.clip(0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    return Image.fromarray(levels.squeeze()).convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)


if __name__ == "__main__":
    main()
