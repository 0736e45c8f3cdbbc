"""docs/invert.md: its code runs."""

from __future__ import annotations

from typing import Any

from blocks import ROOT, blocks, execute


def test_the_code_runs() -> None:
    page, session = ROOT / "docs" / "invert.md", dict[str, Any]()
    for block in blocks(page):
        execute(block, page, session)
    assert session["found"].match > 0.99
