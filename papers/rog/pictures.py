"""A page to look at: original, reconstructed and enhanced pictures of one batch (fig. 2, 3, 6 and 8).

    PYTHONPATH=src python3 papers/rog/pictures.py --root DATA --page rog.html [--enhancer FILE] [--defenses none sign]

The pictures are inside the page. They are ImageNet's: keep the page to yourself and out of the repository.
"""

from __future__ import annotations

import argparse
import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor
from victims import bench_of, parser, tell

from gradveil.attacks import ATTACKS
from gradveil.defenses import DEFENSES

LARGE, QUALITY = 64, 90
STYLE = "body{font:15px sans-serif;margin:2em}td{padding:2px}img{width:96px;image-rendering:auto}th{text-align:left}"


def main() -> None:
    args = arguments()
    bench, parts = bench_of(args), []
    for name in args.defenses:
        seen, truth = bench.observed(1, DEFENSES[name](), aware=args.aware)
        attack: Any = ATTACKS[args.attack](steps=args.steps, finish="equalize" if name == "sign" else "clamp")
        line = bench.attacked(attack, seen, truth)
        tell({"defense": name, "attack": args.attack} | line, args.out)
        rows = {"original": truth.private.images.float().cpu()[0]}
        rows |= {kind or args.attack: images[0] for kind, images in line["images"].items()}
        parts.append(sheet(f"{name}: PSNR {line['psnr']['mean']:.1f} dB", rows))
    args.page.write_text(page("ROG", parts))


def sheet(title: str, rows: Mapping[str, Tensor]) -> str:
    """A table with one row for each kind of picture, [picture, channel, height, width] each."""
    lines = [f"<tr><th>{escape(name)}</th>{''.join(map(cell, images))}</tr>" for name, images in rows.items()]
    return f"<h2>{escape(title)}</h2><table>{''.join(lines)}</table>"


def cell(image: Tensor) -> str:
    """JPEG keeps a page of hundreds of photographs below 12 MB; small pictures stay exact."""
    levels = (image.clamp(0, 1) * 255).round().byte().expand(3, -1, -1).permute(1, 2, 0).contiguous()
    kind, options = ("jpeg", {"quality": QUALITY}) if image.shape[-1] >= LARGE else ("png", {})
    file = io.BytesIO()
    Image.fromarray(levels.numpy()).save(file, kind, **options)
    return f'<td><img alt="" src="data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"></td>'


def page(title: str, parts: Sequence[str]) -> str:
    head = f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>"
    return f"{head}<h1>{escape(title)}</h1>{''.join(parts)}"


def arguments() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--page", type=Path, required=True)
    made.add_argument("--attack", default="rog")
    made.add_argument(
        "--defenses", nargs="+", default=["none", "uniform", "qsgd", "topk", "sign", "soteria", "precode"]
    )
    made.add_argument("--aware", action="store_true")
    return made.parse_args()


if __name__ == "__main__":
    main()
