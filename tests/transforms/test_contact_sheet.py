"""`gradveil list transforms`: the entries as text, as JSON and as pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradveil.cli import main
from gradveil.data.photos import photos
from gradveil.transforms import LIBRARIES, Policy, library_of
from gradveil.transforms.contact_sheet import caption, contact_sheet
from gradveil.transforms.picture import to_picture

OWN = "[[entry]]\noperation = 'rotate'\nmagnitude = 3\n[[entry]]\noperation = 'brightness'\nmagnitude = 9\n"


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_table_has_a_line_for_every_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert code("list", "transforms") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 50
    assert lines[3].split()[:3] == ["3", "translateX9", "+-0.453"]
    assert lines[16].endswith("(same as 9)")
    assert lines[28].endswith("(the identity)")
    assert code("list", "transforms", "--library", "ats-paper") == 0
    assert capsys.readouterr().out.splitlines()[16].split()[:3] == ["16", "translateX4", "+-0.201"]


def test_the_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert code("list", "transforms", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [str(entry) for entry in LIBRARIES["ats-code"].entries]
    assert all(set(row) == {"name", "paper", "summary", "options"} and row["summary"] for row in rows)
    shift = {"index": 3, "operation": "translateX", "magnitude": 9, "amount": 150 / 331, "signed": True, "same_as": 3}
    assert rows[3]["options"] == shift
    assert rows[39]["options"]["same_as"] is None


def test_the_sheet_shows_every_entry_with_both_signs() -> None:
    library = library_of(("translateX9", "invert0", "color0"))
    picture = photos(size=16, limit=1).images[0]
    sheet = np.asarray(contact_sheet(library, picture))
    shown = [
        np.asarray(to_picture(policy.apply_one(picture, choice, signs)))
        for policy in (Policy(library, ((place,),)) for place in range(3))
        for choice, signs in policy.draws()
    ]
    windows = np.lib.stride_tricks.sliding_window_view(sheet, (16, 16, 3)).squeeze(2)
    assert len(shown) == 4
    for tile in shown:
        assert (windows == tile).all((2, 3, 4)).sum() == 1


def test_what_is_written_under_a_picture() -> None:
    library = LIBRARIES["ats-code"]
    assert [caption(library, place) for place in (0, 3, 16, 28, 37)] == [
        "0 invert7",
        "3 translateX9: +-0.453",
        "16 equalize5: same as 9",
        "28 solarize0: identity",
        "37 solarize4: 142",
    ]


def test_pictures_of_any_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, sheet = tmp_path / "own.toml", tmp_path / "sheet.png"
    own.write_text(OWN)
    assert code("list", "transforms", "--library", str(own), "--pictures", str(sheet)) == 0
    assert capsys.readouterr().out.split()[:2] == ["0", "rotate3"]
    with Image.open(sheet) as found:
        assert found.mode == "RGB"
        assert found.width > 5 * 2 * 96


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("transforms --library ats", "error: --library: unknown name 'ats'"),
        ("transforms --pictures sheet.jpg", "error: --pictures: sheet.jpg: expected a file name that ends in .png"),
        ("transforms --pictures no/where.png", "error: no/where.png: No such file or directory"),
        ("attacks --pictures sheet.png", "error: list attacks: --library and --pictures are for transforms"),
        ("models --library ats-paper", "error: list models: --library and --pictures are for transforms"),
    ],
)
def test_mistakes_are_one_line(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert code("list", *arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
