"""The table of defenses: parts of a cell become one, no picture counts twice, and the page holds what was measured."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path

import pytest

from gradveil.core.interval import mean_interval

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "papers" / "ats"))
defenses, defenses_table = import_module("defenses"), import_module("defenses_table")


def line(attacker: str, first: int, each: list[float], identified: int = 1, defense: str = "prune 0.9", **more) -> dict:
    report = {"model": "m, untrained", "defense": defense, "attacker": attacker, "steps": 600, "bytes": 1234}
    report |= {"first": first, "images": len(each), "failed": 0, "seconds": 2.0, "backend": "sweep"}
    return report | {"psnr_private": {"each": each}, "identified_private": identified} | more


def test_two_halves_are_the_whole() -> None:
    first, second = [10.0, 12.0, 11.0], [14.0, 9.5]
    later, sooner = line("unaware", 3, second, 2), line("unaware", 0, first)
    cell = defenses_table.joined([later, sooner])["prune 0.9", "unaware"]
    interval = mean_interval(first + second)
    assert interval is not None
    assert cell["images"] == 5
    assert cell["identified_private"] == 3
    assert cell["psnr_private"]["each"] == first + second
    assert cell["psnr_private"]["mean"] == pytest.approx(11.3)
    assert cell["psnr_private"]["best"] == 14.0
    assert (cell["psnr_private"]["low"], cell["psnr_private"]["high"]) == pytest.approx(
        (interval.low, interval.high), abs=1e-3
    )


def test_lines_of_before_begin_at_the_first_picture() -> None:
    old = line("unaware", 0, [1.0, 2.0])
    del old["first"]
    assert defenses_table.joined([old])["prune 0.9", "unaware"]["pictures"] == [0, 1]
    assert defenses.cell(old) == defenses.cell(old | {"first": 0})


def test_no_picture_counts_twice_and_the_later_of_two_alike_counts() -> None:
    parts = [line("unaware", 0, [1.0, 2.0]), line("unaware", 0, [3.0, 4.0]), line("unaware", 1, [9.0])]
    assert defenses_table.joined(parts)["prune 0.9", "unaware"]["psnr_private"]["each"] == [3.0, 4.0]
    whole = [*parts, line("unaware", 0, [5.0, 6.0, 7.0], 3)]
    cell = defenses_table.joined(whole)["prune 0.9", "unaware"]
    assert (cell["images"], cell["identified_private"]) == (3, 3)


def test_knowing_is_paired_by_picture() -> None:
    lines = [line("unaware", 0, [10.0, 12.0]), line("adaptive", 1, [15.0, 20.0]), line("adaptive", 0, [9.0])]
    cell = defenses_table.joined(lines)["prune 0.9", "adaptive"]
    assert cell["gain"]["each"] == [-1.0, 3.0]
    assert cell["worse"]["each"] == [10.0, 15.0]
    apart = defenses_table.joined([line("unaware", 0, [10.0]), line("adaptive", 5, [12.0])])
    assert "gain" not in apart["prune 0.9", "adaptive"]
    assert defenses_table.table(apart)[2].count("|") == len(defenses_table.HEAD) + 1


def test_parts_of_different_budgets_do_not_belong_together() -> None:
    with pytest.raises(SystemExit, match=r"prune 0\.9: parts of"):
        defenses_table.joined([line("unaware", 0, [1.0]), line("unaware", 1, [1.0], steps=800)])
    with pytest.raises(SystemExit, match=r"prune 0\.9: parts of"):
        defenses_table.joined([line("unaware", 0, [1.0]), line("unaware", 1, [1.0], rate=0.2)])


def test_a_row_says_how_many_pictures_both_have() -> None:
    report = [line("unaware", 0, [10.0, 12.0, 11.0]), line("adaptive", 1, [13.0, 10.0])]
    assert "12.0 (11.0 to 13.0), 2 pictures |" in defenses_table.table(defenses_table.joined(report))[2]
    report.append(line("adaptive", 0, [13.0]))
    assert "pictures" not in defenses_table.table(defenses_table.joined(report))[2]


def test_a_row_says_what_was_not_run_and_what_changes_nothing() -> None:
    report = [line("unaware", 0, [10.0, 12.0], defense=name) for name in ("none", "qsgd 3 bits", "gaussian 0 dB")]
    report.append(line("adaptive, whole cells (replaced)", 0, [1.0, 1.0], defense="qsgd 3 bits"))
    rows = defenses_table.table(defenses_table.joined(report))[2:]
    assert [row.split("|")[4].strip() for row in rows] == ["", "not run", "the same"]


@pytest.mark.parametrize(
    ("heading", "model", "file"),
    [
        ("### LeNet", "lenet, untrained", "defenses-lenet.jsonl"),
        ("### ResNet20-4", "resnet20-4, untrained", "defenses-resnet20.jsonl"),
    ],
)
def test_the_page_holds_what_was_measured(heading: str, model: str, file: str) -> None:
    report = (ROOT / "papers" / "ats" / "results" / file).read_text().splitlines()
    lines = [one for one in map(json.loads, report) if one["model"] == model]
    rows = defenses_table.table(defenses_table.joined(lines))
    page = (ROOT / "papers" / "ats" / "update-defenses.md").read_text()
    assert defenses_table.with_table(page, heading, rows) == page


def test_only_the_table_of_a_page_changes() -> None:
    page = "# a\n\n| x |\n\n## b\n\ntext\n\n| old |\n|---|\n\nend\n"
    assert defenses_table.with_table(page, "## b", ["| new |"]) == "# a\n\n| x |\n\n## b\n\ntext\n\n| new |\n\nend\n"
    with pytest.raises(SystemExit, match="no line '## c'"):
        defenses_table.with_table(page, "## c", [])


def test_cells_that_a_file_holds_are_left_out(tmp_path: Path) -> None:
    args = Namespace(
        model="lenet", weights=None, steps=3, rate=0.1, without=[], first=50, images=2, out=tmp_path / "lines.jsonl"
    )
    head = defenses.head_of("sign", "unaware", args)
    assert defenses.done(args.out) == set()
    args.out.write_text(json.dumps(head | {"bytes": 1}) + "\n")
    assert defenses.cell(head) in defenses.done(args.out)
    assert defenses.cell(defenses.head_of("sign", "adaptive", args)) not in defenses.done(args.out)
    args.without = ["fc.*"]
    assert defenses.head_of("sign", "unaware", args)["attacker"] == "unaware, without fc.*"
    args.first, args.without = 0, []
    assert defenses.cell(defenses.head_of("sign", "unaware", args)) not in defenses.done(args.out)


def test_who_knows_is_not_run_where_knowing_changes_nothing() -> None:
    helps = {label: defenses.knowing_helps(label) for label in defenses.ROWS}
    assert {label for label, yes in helps.items() if not yes} == {
        "none", *(label for label in defenses.ROWS if label.startswith(("gaussian", "laplacian")))
    }  # fmt: skip
