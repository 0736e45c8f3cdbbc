"""Libraries: the two of ATS against the paper's table, what is the same function, and files of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.data.photos import photos
from gradveil.transforms import LIBRARIES, Entry, Library, library_of
from gradveil.transforms.operation import OPERATIONS

# table 1 of the journal version by operation: index -> magnitude
TABLE_1 = {
    "invert": {0: 7, 29: 0, 47: 1},
    "contrast": {1: 6, 18: 7},
    "rotate": {2: 2},
    "translateX": {3: 9, 16: 4, 21: 5},
    "translateY": {7: 2, 24: 3, 42: 3, 43: 4, 48: 3},
    "shearY": {6: 2, 10: 5},
    "sharpness": {4: 1, 5: 3, 14: 9, 19: 5, 25: 6},
    "color": {12: 3, 20: 5, 27: 8, 34: 5, 39: 0},
    "brightness": {13: 5, 15: 9, 26: 6, 38: 3},
    "posterize": {11: 5},
    "solarize": {28: 0, 37: 4, 40: 1, 45: 1},
    "autocontrast": {8: 5, 23: 8, 31: 0, 36: 4, 41: 0, 44: 1, 49: 1},
    "equalize": {9: 2, 17: 1, 22: 7, 30: 0, 32: 8, 33: 4, 35: 5, 46: 5},
}
ALIKE = [  # in the code's list
    {0, 29, 47},
    {8, 23, 31, 36, 41, 44, 49},
    {9, 16, 17, 22, 30, 32, 33, 35, 46},
    {24, 42, 43, 48},
    {20, 34},
    {40, 45},
]


def test_the_paper_s_library_is_its_table_1() -> None:
    entries = {place: Entry(name, m) for name, row in TABLE_1.items() for place, m in row.items()}
    assert [entries[place] for place in range(50)] == list(LIBRARIES["ats-paper"].entries)


def test_the_libraries_differ_at_three_numbers_of_which_two_matter() -> None:
    code, paper = LIBRARIES["ats-code"].entries, LIBRARIES["ats-paper"].entries
    differ = {place: (str(a), str(b)) for place, (a, b) in enumerate(zip(code, paper, strict=True)) if a != b}
    expected = {16: ("equalize5", "translateX4"), 43: ("translateY3", "translateY4"), 47: ("invert0", "invert1")}
    assert differ == expected
    assert [place for place in differ if code[place].function != paper[place].function] == [16, 43]


def test_the_code_s_library_has_29_entries_of_their_own_two_of_them_identities() -> None:
    alike = LIBRARIES["ats-code"].alike
    assert [place for place, first in enumerate(alike) if first is None] == [28, 39]
    for group in ALIKE:
        assert {place for place, first in enumerate(alike) if first == min(group)} == group
    repeated = sum(len(group) - 1 for group in ALIKE)
    assert len(set(alike) - {None}) == 27 == 50 - repeated - 2
    assert len(set(LIBRARIES["ats-paper"].alike) - {None}) == 29


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    return photos(size=24, limit=4).images


def done(entry: Entry, sign: int, pictures: Tensor) -> Tensor:
    return entry.does.apply(pictures, torch.full((len(pictures),), sign * entry.amount, dtype=torch.float64))


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_counts_as_the_same_does_the_same_and_the_rest_does_not(name: str, pictures: Tensor) -> None:
    entries = [Entry(name, magnitude) for magnitude in range(10)]
    for one in entries:
        plus = done(one, 1, pictures)
        assert torch.equal(plus, pictures) == (one.function is None), one
        if one.does.signed:
            assert torch.equal(plus, done(one, -1, pictures)) != one.is_signed, one
        for other in entries[: one.magnitude]:
            assert torch.equal(plus, done(other, 1, pictures)) == (one.function == other.function), (one, other)


def test_magnitudes_are_those_of_autoaugment() -> None:
    """By hand: ten even steps; on 32 pixels the published policy shifts by 14.5, 3.2 and 4.8."""
    amounts = {str(entry): entry.amount for entry in LIBRARIES["ats-code"].entries}
    assert amounts["translateX9"] * 32 == pytest.approx(14.5, abs=0.01)
    assert amounts["translateY2"] * 32 == pytest.approx(3.22, abs=0.01)
    assert amounts["translateY3"] * 32 == pytest.approx(4.83, abs=0.01)
    assert amounts["contrast6"] == pytest.approx(1 / 3)
    assert amounts["rotate2"] == pytest.approx(20 / 3)
    assert amounts["posterize5"] == 6
    assert amounts["solarize4"] == pytest.approx(142.2, abs=0.03)


def test_a_library_is_known_by_its_name_its_entries_or_itself() -> None:
    code = LIBRARIES["ats-code"]
    assert library_of("ats-code") is code
    assert library_of(code) is code
    own = library_of(("translateX9", "invert0"))
    assert own.entries == (Entry("translateX", 9), Entry("invert", 0))
    assert code.spec == "ats-code"
    assert own.spec == ("translateX9", "invert0")
    assert library_of(own.spec) == own
    renamed = Library("ats-code", own.entries)  # a name of the table with other entries is not taken for the table's
    assert renamed.spec == own.spec


FILE = """
[[entry]]
operation = "translateX"
magnitude = 9

[[entry]]
operation = "invert"
magnitude = 0
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_library_of_one_s_own_from_a_file(tmp_path: Path) -> None:
    found = library_of(written(tmp_path, FILE))
    assert found.name == "mine"
    assert found.spec == ("translateX9", "invert0")


WRONG_FILES = {
    FILE + "[[entry]]\nmagnitude = 1": "mine.toml: entry 2: operation is None, expected a name",
    FILE
    + "[[entry]]\noperation = 'invert'": "mine.toml: entry 2: magnitude is None, expected a whole number from 0 to 9",
    FILE.replace("translateX", "translatX"): "mine.toml: entry 0: operation: unknown name 'translatX', did you mean",
    FILE.replace('"invert"', "3"): "mine.toml: entry 1: operation is 3, expected a name",
    FILE.replace("= 9", "= 10"): "mine.toml: entry 0: magnitude 10 is out of range, take 0 to 9",
    FILE.replace("= 9", "= -1"): "mine.toml: entry 0: magnitude -1 is out of range, take 0 to 9",
    FILE.replace("= 9", "= 9.0"): "mine.toml: entry 0: magnitude is 9.0, expected a whole number",
    FILE.replace("= 9", "= true"): "mine.toml: entry 0: magnitude is True, expected a whole number",
    FILE.replace("= 9", "= 9\nprobability = 0.5"): "mine.toml: entry 0: unknown key 'probability', known: magnitude",
    "name = 'mine'" + FILE: "mine.toml: unknown key 'name', expected [[entry]] tables alone",
    "entry = [1]": "mine.toml: entry 0: expected a table",
    "entry = 3": "mine.toml: no entries",
    "": "mine.toml: no entries, write [[entry]] tables",
    "[[entry": "mine.toml: not TOML",
}


@pytest.mark.parametrize(("text", "message"), WRONG_FILES.items(), ids=list(WRONG_FILES.values()))
def test_every_mistake_in_a_file_is_one_line_that_names_it(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        library_of(written(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ats-cod", "unknown name 'ats-cod', did you mean 'ats-code'?"),
        ("nowhere/mine.toml", "nowhere/mine.toml: cannot be read"),
        (("translateX9", "contrast"), "own: entry 1: expected an operation and its magnitude such as translateX9"),
        (("translateX99",), "own: entry 0: magnitude 99 is out of range"),
        (("transalteX9",), "own: entry 0: operation: unknown name 'transalteX', did you mean 'translateX'?"),
        ((), "a library of 0 entries"),
    ],
)
def test_bad_specs(spec: str | tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        library_of(spec)
