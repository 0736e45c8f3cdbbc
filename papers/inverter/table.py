"""Tables of docs/findings/learned-inverter.md, made of the lines of `study.py`.

python3 papers/inverter/table.py papers/inverter/results/h200.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COLUMNS = ("inverter, searched ones", "search", "search from the inverter")


def main() -> None:
    lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    found = {line["cell"]: line for line in lines if "failed" not in line}
    print("\n".join([*sizes(found), "", *defenses(found), "", *differences(found)]))


def sizes(found: dict[str, Any]) -> Iterator[str]:
    yield "| | simulated updates | features | trained for | PSNR | over class mean | median rank | first | SSIM |"
    yield "|---|---|---|---|---|---|---|---|---|"
    cells = {name.removeprefix("size/"): one for name, one in found.items() if name.startswith("size/")}
    first = next(iter(cells.values()))
    for name in ("blank", "class mean"):
        yield f"| {name} | | | | {first[name]['psnr']:.1f} | | {first[name]['rank']:.0f} | | |"
    for name, one in cells.items():
        how = (
            f"{one['simulated']:,} | {one['features']:,} | {one['trained_in']:.0f} s" if "simulated" in one else " | | "
        )
        yield (
            f"| {name} | {how} | {span(one['psnr'])} | {signed(one['class mean']['psnr over'])} | "
            f"{span(one['rank'], '.0f')} | {one['first']} of {one['victims']} | {one['ssim']:.2f} |"
        )


def defenses(found: dict[str, Any]) -> Iterator[str]:
    yield "| network, defense | seconds each | inverter | search | search from the inverter |"
    yield "|---|---|---|---|---|"
    for name, one in found.items():
        if name.startswith("defense/"):
            cells = [f"{one[c]['psnr']['value']:.1f} dB, rank {one[c]['rank']['value']:.0f}" for c in COLUMNS]
            yield f"| {label(name)} | {one['seconds']:.0f} | {' | '.join(cells)} |"


def differences(found: dict[str, Any]) -> Iterator[str]:
    yield "| network, defense | inverter over class mean | over search | search from it over inverter | over search |"
    yield "|---|---|---|---|---|"
    for name, one in found.items():
        if name.startswith("defense/"):
            over = {key: -one["search"]["over inverter"][key] for key in ("value", "low", "high")}
            over["low"], over["high"] = over["high"], over["low"]
            after = one["search from the inverter"]
            cells = (one["inverter"]["class mean"]["psnr over"], over, after["over inverter"], after["over search"])
            yield f"| {label(name)} | {' | '.join(map(signed, cells))} |"


def label(name: str) -> str:
    _, network, defense = name.split("/")
    return f"{network}, `{defense}`"


def span(one: dict[str, float], form: str = ".1f") -> str:
    return f"{one['value']:{form}} ({one['low']:{form}} to {one['high']:{form}})"


def signed(one: dict[str, float]) -> str:
    return f"{one['value']:+.1f} ({one['low']:+.1f} to {one['high']:+.1f})"


if __name__ == "__main__":
    main()
