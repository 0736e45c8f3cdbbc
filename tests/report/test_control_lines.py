"""Every attack that counts as evidence has a line of its own for its positive control, on the page and the terminal."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from toys import Noise, audit

from gradveil.attacks import ATTACKS
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.verdict import Verdict
from gradveil.cli import main
from gradveil.core.defense import Defense
from gradveil.defenses.gaussian import Gaussian
from gradveil.report.conclude import conclude
from gradveil.report.terminal import judgments

LINE = re.compile(r"<div><dt>([^<]+) <span>positive control</span></dt><dd>(.*?)</dd></div>")
DEFENSES = {"none": Defense(), "noise": Gaussian(scale=1e3)}


def in_order() -> Audit:
    """As the default audit runs its attacks: what leaked to one is left out for the next."""
    attacks = {"linear": ATTACKS["linear"](), "dlg": ATTACKS["dlg"](steps=60, restarts=1), "guess": Noise()}
    whole = audit(attacks, DEFENSES, clients=8, controls=True)
    return replace(whole, sequence=True, convergence=True)


def lines_of(page: str) -> dict[str, str]:
    return {html.unescape(name): re.sub("<[^>]+>", "", text) for name, text in LINE.findall(page)}


def check_page(page: str, verdict: Verdict) -> None:
    lines = lines_of(page)
    counting = {one.attack for found in verdict.findings for one in found.evidence if one.counts}
    assert counting <= lines.keys()
    assert not any("no evidence" in lines[attack] for attack in counting)
    failed = {check.attack for check in verdict.each_positive if not check.passed}
    assert {attack for attack, text in lines.items() if "no evidence" in text} == failed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Verdict]:
    folder = tmp_path_factory.mktemp("lines") / "run"
    run_audit(in_order(), folder)
    return folder, conclude(folder)


def test_every_attack_has_its_line_and_what_fails_says_so(finished: tuple[Path, Verdict]) -> None:
    folder, verdict = finished
    page = (folder / "report.html").read_text()
    check_page(page, verdict)
    assert {name: text.split(" recovered")[0] for name, text in lines_of(page).items()} == {
        "linear": "8 of 8",
        "dlg": "8 of 8",
        "guess": "0 of 8",
    }
    (noise,) = (found for found in verdict.findings if found.tally.defense == "noise")
    assert (noise.verdict, [one.attack for one in noise.evidence if one.counts]) == ("no leak found", ["dlg"])


def test_the_terminal_says_the_same(finished: tuple[Path, Verdict]) -> None:
    said = "\n".join(judgments(finished[1]))
    assert "positive control of dlg: passed, without a defense dlg recovers 8 of 8 pictures" in said
    assert "positive control of guess: failed, without a defense guess recovers 0 of 8 pictures" in said


@pytest.mark.more
def test_so_does_the_default_audit(tmp_path: Path) -> None:
    """Its attacks, defenses and order; fewer steps, pictures and pixels."""
    data = ["--data", "digits", "--data-option", "size=8", "--model", "mlp", "--images", "2"]
    small = [*data, "--budget", "quick", "--quiet"]
    with pytest.raises(SystemExit) as left:
        main(["audit", *small, "--out", str(tmp_path / "run")])
    assert not left.value.code
    verdict = conclude(tmp_path / "run")
    page = (tmp_path / "run/report.html").read_text()
    check_page(page, verdict)
    tried = {cell.attack for cell in verdict.cells if not cell.control}
    assert len(tried) > 1
    assert lines_of(page).keys() == tried
