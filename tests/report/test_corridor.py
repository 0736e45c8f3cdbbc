"""The corridor on the page and on the terminal: three numbers for each defense, drawn and in words."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.append(str(Path(__file__).parents[1] / "audit/verdict"))

from runs import even_ranks, failed, hidden, line_up, record
from runs import run_of as handmade
from synthetic import random_run, write_run

from gradveil.audit.results import Run
from gradveil.audit.verdict import judge
from gradveil.report import write_report
from gradveil.report.build import render
from gradveil.report.corridor import Corridor, draw_corridors, place
from gradveil.report.terminal import sentences

LANE = re.compile(r'<div class="way">.*?<svg(.*?)</svg>', re.DOTALL)
STRONG = {"at_most": 0.0183, "kappa": 1 / 1001, "kind": "gaussian"}
CLIENTS = 8


def whole_run() -> Run:
    """Undefended, pruned (all named), clipped and noised (none named, certified), one without a likelihood."""
    labels = ("prune", "dpsgd", "odd")
    attacks = [
        hidden(i, defense=d, attacker=w) for d in labels for w in ("unaware", "adaptive") for i in range(CLIENTS)
    ]
    lost = {"attack": "line-up", "control": "lineup", "attacker": "adaptive"}
    unlikely = [
        replace(failed(i, defense="odd", **lost), reason="no <b>likelihood</b> is known") for i in range(CLIENTS)
    ]
    found = [*line_up(CLIENTS), *line_up(CLIENTS, "prune"), *line_up(CLIENTS, "dpsgd", even_ranks(CLIENTS)), *unlikely]
    privacy = {"easy": {"prune": {"said": "epsilon 3", "of": "RDP"}}}
    run = handmade([record(i) for i in range(CLIENTS)], attacks, found, privacy=privacy,
                   certificates={"easy": {"dpsgd": STRONG}})  # fmt: skip
    return replace(run, config={**run.config, "defense": {name: {"name": name} for name in ("none", *labels)}})


@pytest.fixture(scope="module")
def drawn() -> dict[str, Corridor]:
    return {one.finding.tally.defense: one for one in draw_corridors(judge(whole_run()))}


def test_every_defense_has_its_three_numbers(drawn: dict[str, Corridor]) -> None:
    assert {name: one.attack_words for name, one in drawn.items()} == {
        "none": "8 of 8", "prune": "0 of 8", "dpsgd": "0 of 8", "odd": "0 of 8",
    }  # fmt: skip
    assert drawn["prune"].lineup_words == "100 % of 80, among 1,001 (95 %: 95 % to 100 %)"
    assert drawn["dpsgd"].lineup_words == "0 % of 80, among 1,001 (95 %: 0 % to 4.6 %)"
    assert drawn["odd"].lineup_words == "not evaluated: no <b>likelihood</b> is known"
    assert drawn["dpsgd"].certificate_words == "at most 1.83 % (random guessing: 0.10 %)"
    assert {drawn[name].certificate_words for name in ("none", "prune", "odd")} == {"none"}


def test_marks_lie_where_their_numbers_are(drawn: dict[str, Corridor]) -> None:
    attack, named = drawn["prune"].attack, drawn["prune"].lineup
    assert attack is not None
    assert named is not None
    assert (attack.x, named.x) == (place(0), place(1))
    assert named.start < named.x == named.end
    assert drawn["dpsgd"].certificate == place(0.0183)
    assert drawn["dpsgd"].limit == place(0.05)
    assert drawn["prune"].certificate is None


def test_the_page_draws_them_and_says_them() -> None:
    page = render(whole_run())
    head = page[: page.index('id="findings"')]
    lanes = LANE.findall(head)
    assert len(lanes) == 4
    for lane in lanes:
        svg = ElementTree.fromstring(f"<svg{lane}</svg>")
        assert "pictures identified by attacks" in svg.attrib["aria-label"]
        assert "certificate" in svg.attrib["aria-label"]
        for element in svg.iter():
            for name in ("x", "x1", "x2", "cx", "width"):
                assert 0 <= float(element.get(name, "0%").rstrip("%")) <= 100
    assert [lane.count('class="line-up-band"') for lane in lanes].count(0) == 1  # the one without a likelihood
    assert sum('class="ruled-out"' in lane for lane in lanes) == 1
    assert head.count("Whoever has a picture") == 1
    assert "not linkable" in head
    assert "<b>likelihood</b>" not in page


def test_the_epsilon_that_is_shown_stands_beside_the_account() -> None:
    page = render(whole_run())
    assert page.count("Epsilon that the line-up shows") == 1  # where there is an account
    assert "at least 6.87<small>one picture added or removed; 10.2 if one is replaced</small>" in page


def test_the_terminal_has_a_line_for_each() -> None:
    lines = list(sentences(judge(whole_run())))
    named = "line-up 100 % of 80, among 1,001 (95 %: 95 % to 100 %); near copies 100 % saved again as JPEG"
    assert f"prune: attacks identify 0 of 8; {named}; certificate none; linkable" in lines
    assert sum("; line-up " in line for line in lines) == 4
    assert not any("trials failed" in line for line in lines)


def test_an_older_run_has_none(tmp_path: Path) -> None:
    assert draw_corridors(judge(random_run(0))) == []
    page = write_report(write_run(tmp_path / "older")).read_text()
    assert 'id="corridor"' not in page
    assert "linkable" not in page[page.index("</style>") :]


def test_a_redacted_copy_draws_the_same(tmp_path: Path) -> None:
    from gradveil.report.redact import redact_run

    shown = render(redact_run(whole_run()))
    assert len(LANE.findall(shown)) == 4
    assert "likelihood" not in shown[: shown.index('id="findings"')]
