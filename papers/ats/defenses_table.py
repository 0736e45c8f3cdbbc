"""The table of papers/ats/update-defenses.md from the lines of `defenses.py`; a cell may come in several parts.

    PYTHONPATH=src:papers/ats python3 papers/ats/defenses_table.py --page papers/ats/update-defenses.md \\
        papers/ats/results/defenses-resnet20.jsonl MORE.jsonl

Pictures 0 to 49 and 50 to 99 of a cell become one line of a hundred: mean with its 95 % interval (BCa), best, how many
are identified; for the attacker who knows also the gain by knowing, paired by picture, and the worse of both, picture
by picture. Prints the table; `--page` puts it under the heading of the page, `--joined` writes the lines.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from defenses import ATTACKERS, OLD, ROWS, knowing_helps
from victims import about

Line = dict[str, Any]
HEAD = ("defense", "unaware", "identified", "adaptive", "identified", "knowing", "worse of both", "published", "bytes")
PUBLISHED = {  # mean PSNR in dB: ATS table 4, LODA table 1; what the text of ROG says of its pictures
    "none": "ATS 12.1, LODA 16.6",
    "gaussian 1e-3": "ATS 10.9",
    "gaussian 1e-2": "ATS 10.1",
    "laplacian 1e-3": "ATS 10.9",
    "laplacian 1e-2": "ATS 10.5",
    "prune 0.7": "ATS 10.2",
    "prune 0.9": "LODA 11.5",
    "prune 0.95": "ATS 10.0",
    "prune 0.99": "ATS 9.6, LODA 5.4",
    "topk 0.95": "ROG fig. 6: similar",
    "sign": "ROG fig. 7: similar",
    "uniform 3 bits": "ROG fig. 6: similar",
    "qsgd 3 bits": "ROG fig. 6: similar",
    "soteria 0.8": "ROG fig. 8: close",
    "precode": "ROG fig. 8: close",
    "fedcdp 0 dB": "ROG fig. 8: structure",
    "fedcdp -20 dB": "ROG fig. 9: some structure",
}


def main() -> None:
    args = arguments()
    lines = [json.loads(text) for file in args.files for text in file.read_text().splitlines()]
    cells = joined(line for line in lines if line["model"] == args.model)
    rows = table(cells)
    print("\n".join(rows))
    if args.joined:
        args.joined.write_text("".join(json.dumps(line) + "\n" for line in cells.values()))
    if args.page:
        args.page.write_text(with_table(args.page.read_text(), args.heading, rows))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="lines of defenses.py")
    parser.add_argument("--model", default="resnet20-4, untrained")
    parser.add_argument("--joined", type=Path, help="a file for the joined lines")
    parser.add_argument("--page", type=Path, help="a page whose table is replaced")
    parser.add_argument("--heading", default="### ResNet20-4", help="the line above that table")
    return parser.parse_args()


def joined(lines: Iterable[Line]) -> dict[tuple[str, str], Line]:
    """One line for each defense and attacker; that of the one who knows compares both."""
    parts: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        if line["defense"] in ROWS and line["attacker"] in ATTACKERS:
            parts[line["defense"], line["attacker"]].append(line)
    cells = {key: one(some) for key, some in parts.items()}
    for (defense, attacker), cell in cells.items():
        if attacker == "adaptive" and (defense, "unaware") in cells:
            cell |= compared(cell, cells[defense, "unaware"])
    return cells


def one(parts: Sequence[Line]) -> Line:
    """No picture counts twice: the larger part first, of two alike the later."""
    latest = {(part.get("first", 0), part["images"]): part for part in parts}
    scores: dict[int, float] = {}
    kept: list[Line] = []
    for (first, images), part in sorted(latest.items(), key=lambda item: (-item[0][1], item[0][0])):
        if not scores.keys() & set(range(first, first + images)):
            scores |= dict(enumerate(part["psnr_private"]["each"], first))
            kept.append(part)
    return summary(kept, dict(sorted(scores.items())))


def summary(parts: Sequence[Line], scores: dict[int, float]) -> Line:
    budgets = {(part["steps"], part.get("rate", OLD["rate"])) for part in parts}
    if len(budgets) > 1:
        raise SystemExit(f"{parts[0]['defense']}: parts of {sorted(budgets)} (steps, rate) do not belong together")
    report = {key: parts[0].get(key) for key in ("model", "defense", "attacker", "steps", "rate", "bytes")}
    report |= {
        "images": len(scores),
        "pictures": list(scores),
        "psnr_private": about(torch.tensor(list(scores.values()))),
    }
    counts = {key: sum(part[key] for part in parts) for key in ("identified_private", "failed", "seconds")}
    return report | counts | {"backend": sorted({part["backend"] for part in parts})}


def compared(knowing: Line, unaware: Line) -> Line:
    """In dB, over the pictures that both have."""
    mine, other = (torch.full((max(line["pictures"]) + 1,), torch.nan) for line in (knowing, unaware))
    for scores, line in ((mine, knowing), (other, unaware)):
        scores[line["pictures"]] = torch.tensor(line["psnr_private"]["each"])
    both = torch.stack([scores[: min(len(mine), len(other))] for scores in (mine, other)])
    mine, other = both[:, both.isfinite().all(0)]
    return {"gain": about(mine - other), "worse": about(torch.maximum(mine, other))} if len(mine) else {}


def table(cells: dict[tuple[str, str], Line]) -> list[str]:
    rows = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    for label in ROWS:
        unaware, knowing = (cells.get((label, attacker)) for attacker in ATTACKERS)
        if unaware is not None:
            report = [
                label,
                *shown(unaware),
                *known(unaware, knowing),
                PUBLISHED.get(label, ""),
                f"{unaware['bytes']:,}",
            ]
            rows.append("".join(f"| {text} " if text else "| " for text in report) + "|")
    return rows


def shown(line: Line) -> tuple[str, str]:
    psnr = line["psnr_private"]
    return f"{between(psnr)}, best {psnr['best']:.1f}", f"{line['identified_private']} of {line['images']}"


def known(unaware: Line, line: Line | None) -> tuple[str, str, str, str]:
    if line is not None:
        return *shown(line), between(line.get("gain"), "+"), between(line.get("worse")) + fewer(line, unaware)
    if knowing_helps(unaware["defense"]):
        return "not run", "", "", ""
    return "" if unaware["defense"] == "none" else "the same", "", "", between(unaware["psnr_private"])


def fewer(line: Line, unaware: Line) -> str:
    """Both were not run on the same pictures."""
    both = len(line["worse"]["each"]) if "worse" in line else 0
    return f", {both} pictures" if 0 < both < unaware["images"] else ""


def between(psnr: dict[str, Any] | None, sign: str = "") -> str:
    if psnr is None:  # no picture in common
        return ""
    ends = "" if psnr["low"] is None else f" ({psnr['low']:z.1f} to {psnr['high']:z.1f})"
    return f"{psnr['mean']:{sign}z.1f}{ends}"


def with_table(page: str, heading: str, rows: Sequence[str]) -> str:
    """The page with these rows in the place of the first table under a heading."""
    lines = page.splitlines()
    if heading not in lines:
        raise SystemExit(f"there is no line {heading!r} on the page")
    start = next((i for i in range(lines.index(heading), len(lines)) if lines[i].startswith("|")), None)
    if start is None:
        raise SystemExit(f"there is no table under {heading!r}")
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return "\n".join([*lines[:start], *rows, *lines[end:]]) + "\n"


if __name__ == "__main__":
    main()
