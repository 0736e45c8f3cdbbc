"""docs/catalogue.md is what the code says, and has a row for every method."""

from __future__ import annotations

import pytest
from blocks import ROOT

from gradveil.cli import main
from gradveil.cli.catalogue import KINDS, rows
from gradveil.cli.catalogue_page import page

PAGE = ROOT / "docs/catalogue.md"
RENEW = "docs/catalogue.md is not current: run `gradveil list --markdown > docs/catalogue.md`"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), RENEW


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "transforms"])
def test_every_summary_is_a_sentence(kind: str) -> None:
    for row in rows(kind):
        assert row["summary"].endswith("."), row["name"]


def test_the_command_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["list", "--markdown"])
    assert capsys.readouterr().out == page()
    for wrong in (["list"], ["list", "attacks", "--markdown"]):
        with pytest.raises(SystemExit, match="2"):
            main(wrong)
