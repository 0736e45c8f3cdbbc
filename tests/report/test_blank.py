"""Beside every PSNR stands what the mean public picture reaches, wherever gradveil prints or writes one."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from synthetic import SCENE, run_of, trial

from gradveil.audit.results import Run
from gradveil.audit.table import as_csv
from gradveil.audit.verdict import judge, to_json
from gradveil.report.build import render
from gradveil.report.terminal import tables
from gradveil.search.outcome import Confirmed
from gradveil.search.page import COLUMNS, _confirmed_cells

BLANKS = (11.25, 13.75)  # mean 12.5


@pytest.fixture
def run() -> Run:
    scenes = {
        "s": {**SCENE, "role": "audited"},
        "v": {**SCENE, "role": "variation", "batch_size": 2},
        "easy": {**SCENE, "role": "control"},
    }
    records = [
        trial(f"c{k}", 20.0 + k, scenario=scenario, attack=attack, blank=blank, control=control)
        for scenario, control in (("s", ""), ("s", "prior"), ("v", ""), ("easy", ""))
        for attack in ("a", "b")
        for k, blank in enumerate(BLANKS)
    ]
    return run_of(*records, provenance={"scenarios": scenes, "gallery": 99})


def cells_below(page: str, heading: str) -> list[list[str]]:
    """The tables whose last row of headings has this one: their rows, without tags."""
    found = []
    for table in re.findall(r"<table.*?</table>", page, re.S):
        if heading in table.split("</thead>")[0]:
            found += [re.findall(r"<td[^>]*>(.*?)</td>", line, re.S) for line in table.split("<tr")[1:]]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in cells] for cells in found if cells]


def test_the_terminal(run: Run) -> None:
    for _, names, lines in tables(judge(run).cells):
        assert names[names.index("PSNR worst") + 3] == "blank"
        assert [line[names.index("blank")] for line in lines] == ["12.5"] * 2
        assert all(len(line) == len(names) for line in lines)


def test_a_terminal_without_originals_has_a_dash(run: Run) -> None:
    without = replace(run, records=[replace(record, blank=None) for record in run.records])
    (_, names, lines), *_ = tables(judge(without).cells)
    assert {line[names.index("blank")] for line in lines} == {"-"}


def test_the_measurements_of_the_page(run: Run) -> None:
    page = render(run)
    heads = re.search(r'<table class="cells">.*?</thead>', page, re.S)
    assert heads is not None
    assert ">blank</th>" in heads.group()
    width = sum(int(number) for number in re.findall(r'colspan="(\d+)"', heads.group()))
    assert width == heads.group().split("<tr>")[2].count("<th")  # group headings cover their columns
    assert "12.5" in {cell for cells in cells_below(page, ">blank<") for cell in cells}


def test_the_checks_of_the_page(run: Run) -> None:
    rows = cells_below(render(run), "blank, mean")
    assert len(rows) == 1 + 2 + 2  # one variation, the prior and the easy scenario of two attacks each
    assert all("12.5" in cells for cells in rows)


def test_the_cards_of_the_page(run: Run) -> None:
    card = render(run).split("<article")[1].split("</article>")[0]
    assert "<dt>blank, mean</dt><dd>12.5 dB</dd>" in card


def test_the_verdict_for_machines(run: Run) -> None:
    for cell in to_json(run, judge(run))["cells"]:
        assert (cell["blank"]["mean"], cell["blank"]["count"]) == (12.5, 2)


def test_the_table_of_records(run: Run) -> None:
    found = list(csv.DictReader(io.StringIO(as_csv(run.records))))
    assert {row["client"]: float(row["blank"]) for row in found} == {"c0": BLANKS[0], "c1": BLANKS[1]}


def test_the_page_of_a_search() -> None:
    parts = {"pictures": 4, "failed": 0, "low": None, "high": None, "psnr_fed": 9.0, "identified": 0, "leaked": 0}
    seen = Confirmed(attacker="unaware", psnr=10.0, blank=12.5, **parts)
    cells = dict(zip(COLUMNS[-4:], _confirmed_cells([seen]), strict=True))
    assert cells["blank"] == "12.5"
    assert _confirmed_cells([replace(seen, blank=None)])[2] == "-"


def test_a_picture_counts_once_whoever_attacked_it() -> None:
    records = [trial("c0", 20.0, blank=10.0), *(trial("c1", 20.0, blank=14.0, attack=a) for a in "abc")]
    (finding,) = judge(run_of(*records)).findings
    assert finding.tally.blank is not None
    assert finding.tally.blank.mean == 12.0
