"""Tables of docs/findings/what-updates-contain.md, made of the lines of `contents.py`.

PYTHONPATH=src:papers/loda python3 papers/lineup/contents_table.py papers/lineup/results/contents.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from contents import DEFENSES, MIXED

NETWORKS = ("lenet", "lenet5", "resnet20, untrained", "resnet20, trained")
SHORT = {"exact": "", "bound": " (upper bound)", "estimated": " (estimated)"}


def main() -> None:
    read = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    lines = [one for one in read if not one.get("failed")]
    settings = list(dict.fromkeys((one["batch"], one["steps"]) for one in lines))
    for batch, steps in sorted(settings):
        print("\n".join(table([one for one in lines if (one["batch"], one["steps"]) == (batch, steps)])), "\n")


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """One row for each defense, one column for each network."""
    networks = [name for name in NETWORKS if any(one["network"] == name for one in lines)]
    found = {(one["network"], one["defense"]): one for one in lines}
    steps, batch = lines[0]["steps"], lines[0]["batch"]
    yield f"### Batch {batch}, {steps} local step{'s' if steps > 1 else ''}\n"
    yield f"| defense | {' | '.join(networks)} |"
    yield "|---" * (len(networks) + 1) + "|"
    present = {one["defense"] for one in lines}
    for defense in (one for one in DEFENSES if one in present):
        cells = [cell(found.get((network, defense))) for network in networks]
        yield f"| `{defense}` | {' | '.join(cells)} |"
    yield "\n" + "; ".join(counts(networks, lines)) + "."
    if missing := [one for one in DEFENSES if one not in present and (batch > 1 or one not in MIXED)]:
        yield f"\nNot run: {', '.join(f'`{one}`' for one in missing)}."


def cell(one: dict[str, Any] | None) -> str:
    """Named, and the near copies that are named most often."""
    if one is None:
        return "not run"
    if "why" in one:
        return "no likelihood"
    return f"{share(one['named'], one)} ({share(max(one['near'].values()), one)}){SHORT[one['kind']]}"


def share(hits: int, one: dict[str, Any]) -> str:
    return f"{100 * hits / one['trials']:.0f} %"


def counts(networks: Iterable[str], lines: list[dict[str, Any]]) -> Iterator[str]:
    for network in networks:
        own = [one for one in lines if one["network"] == network and "why" not in one]
        sizes = sorted({one["candidates"] for one in own})
        trials = sorted({one["trials"] for one in own})
        yield f"{network}: {between(trials)} trials a line, {between(sizes)} candidates"


def between(numbers: list[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


if __name__ == "__main__":
    main()
