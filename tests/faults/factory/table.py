"""The table of docs/verdict.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from factory.play import BASES, CATALOGUE, CRASHED, REASSURING, REFUSED, Result

BEGIN, END = "<!-- faults:begin -->", "<!-- faults:end -->"
COLUMNS = ("leaks", "inconclusive", "not evaluated", REFUSED, "no leak found", "bounded")
TRUTHS = ("leaks", "no leak found", "bounded")
NEEDED = 0.95  # of the healthy bases


def find_faults(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if result.kind]


def find_healthy(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if not result.kind]


def passes(results: Sequence[Result]) -> bool:
    """The gate: no fault reads as protection, and nearly every healthy base gets its true word."""
    healthy = find_healthy(results)
    right = sum(not result.is_false for result in healthy)
    return not any(result.is_false for result in find_faults(results)) and right >= NEEDED * len(healthy)


def summarize(results: Sequence[Result]) -> str:
    faults, healthy = find_faults(results), find_healthy(results)
    false, crashed = (sum(r.result in words for r in faults) for words in (REASSURING, (CRASHED,)))
    right = sum(not r.is_false for r in healthy)
    more = f", {crashed} end in a traceback" if crashed else ""
    kinds = len({r.kind for r in faults})
    return (
        f'{len(faults):,} faults of {kinds} kinds: {false} read "no leak found" or "bounded"{more}. '
        f"{len(healthy):,} healthy runs: {right} got their true word."
    )


def to_markdown(results: Sequence[Result], seed: int, version: str) -> str:
    rows = [
        ["kind", "what is wrong", "faults", *COLUMNS[:-2], 'false "no leak found"', 'false "bounded"'],
        ["---"] * (len(COLUMNS) + 3),
    ]
    for kind in sorted({r.kind for r in find_faults(results)}, key=list(CATALOGUE).index):
        own = [r for r in results if r.kind == kind]
        counts = [str(sum(r.result == word for r in own)) for word in COLUMNS]
        rows.append([f"`{kind}`", CATALOGUE[kind].text, str(len(own)), *counts])
    healthy = [["healthy runs that", "number", "got that word"], ["---"] * 3]
    for truth in TRUTHS:
        own = [r for r in find_healthy(results) if BASES[r.base].truth == truth]
        healthy.append(
            [
                {"leaks": truth, "no leak found": "do not leak", "bounded": "are bounded"}[truth],
                str(len(own)),
                str(sum(not r.is_false for r in own)),
            ]
        )
    head = f"{summarize(results)} Version {version}, seed {seed}."
    return "\n\n".join([head, to_table(healthy), to_table(rows)])


def to_table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write(page: Path, content: str) -> None:
    """Into the page, between the two marks."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}", encoding="utf-8")
