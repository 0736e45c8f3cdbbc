"""docs/privacy-accounts.md: its code runs, and its figures are what comes out."""

from __future__ import annotations

import re
from typing import Any

import pytest
from blocks import ROOT, blocks, execute

import gradveil
from gradveil.dp import Certificate, certify_gaussian
from gradveil.dp.trade_off import show_bound

PAGE = ROOT / "docs/privacy-accounts.md"
TEXT = PAGE.read_text()


def test_the_code_runs_and_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    session: dict[str, Any] = {"__name__": "reader"}
    for block in blocks(PAGE):
        execute(block, PAGE, session)
    printed = capsys.readouterr().out
    quoted = re.search(r"^> (at most .*)$", TEXT, re.MULTILINE)
    assert quoted is not None
    assert printed.startswith(quoted[1])
    found = {name: one for name, one in session.items() if isinstance(one, Certificate)}
    assert {name: (one.unit, one.kind) for name, one in found.items()} == {
        "one": ("example", "gaussian"),
        "layered": ("example", "gaussian"),
        "client": ("client", "gaussian"),
        "nothing": ("example", "none"),
    }
    assert found["client"].releases == 3
    assert "recovered at 20 dB or more" in printed
    assert session["shown"] > 0


def test_the_table_of_bounds() -> None:
    rows = re.findall(r"^\| (0\.\d+|1\.0) \| ([\d.]+ %) \| ([\d.]+) % \|$", TEXT, re.MULTILINE)
    assert len(rows) == 6
    for sigma, at_most, reached in rows:
        bound = certify_gaussian(sigma=float(sigma)).at_most
        assert show_bound(bound) == at_most
        assert float(reached) / 100 < bound


def test_the_figures_in_the_text() -> None:
    for sigma, named in (("0.5", "27.9"), ("1", "5.6"), ("2", "1.8")):
        found = certify_gaussian(sigma=float(sigma), kappa=0.0049).at_most
        assert float(named) == pytest.approx(100 * found, abs=0.15)
    assert gradveil.certificate("dpsgd:noise=0.5", candidates=101).kappa == 1 / 101
