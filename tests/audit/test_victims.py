"""Which pictures an audit attacks: a random sample by its seed that provenance names row by row."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gradveil import data
from gradveil.audit.audit import run_audit
from gradveil.audit.results import read_run
from gradveil.audit.verdict import judge
from gradveil.config import build, from_tables
from gradveil.config.reproduce import reproduce
from gradveil.core.errors import ConfigError
from gradveil.data.draw import describe_rows

TABLES = {
    "seed": 5,
    "metrics": ["psnr"],
    "convergence": False,
    "lineup": 0,
    "scenario": {"model": "mlp", "data": "digits", "data_options": {"size": 8}, "images": 2, "batch_size": 2},
    "also": {"batch_size": [1]},
    "defense": {"none": {}},
    "attack": {"linear": {}},
}


def with_scenario(**changes: object) -> dict:
    return {**TABLES, "scenario": {**TABLES["scenario"], **changes}}


def rows_of(folder: Path) -> list[int]:
    found: list[int] = []
    for span in json.loads((folder / "provenance.json").read_text())["rows"].split():
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "run"
    run_audit(build(from_tables(TABLES)), folder)
    return folder


def test_the_rows_in_provenance_are_the_pictures_that_were_attacked(drawn: Path) -> None:
    rows, digits = rows_of(drawn), data.load("digits", size=8).images
    assert len(rows) == 4
    assert rows != sorted(rows)
    for record in read_run(drawn).records:
        if record.images and record.scenario == "digits-mlp-b2":
            row = rows[2 * int(record.client[1:]) + record.example]
            original = load_file(drawn / "images" / record.images)["original"][record.example]
            assert torch.equal(original, digits[row])


def test_another_batch_size_has_the_same_pictures(drawn: Path) -> None:
    audit = build(from_tables(TABLES))
    (alone,) = audit.also
    pool = audit.scenario.private.images.flatten(0, 1)
    assert torch.equal(alone.private.images.flatten(0, 1), pool[:2])


def test_a_trial_is_computed_again_on_the_same_picture(drawn: Path) -> None:
    assert reproduce(drawn, "digits-mlp-b2/none/linear/unaware/c0001/1").identical


def test_a_run_that_began_with_the_first_pictures_does_not_go_on_with_others(drawn: Path, tmp_path: Path) -> None:
    """As one does that was begun by a version without `draw`: its config has no such key, its pictures are others."""
    audit = build(from_tables(TABLES))
    settings = {**audit.settings, "scenario": {k: v for k, v in audit.settings["scenario"].items() if k != "draw"}}
    older = build(from_tables(with_scenario(draw="first")))
    run_audit(replace(older, settings=settings), tmp_path / "run")
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=re.escape("holds another run (scenario.draw is absent there, 'seed' here)")):
        run_audit(audit, tmp_path / "run")
    with pytest.raises(ConfigError, match="data_sha256 is not the same"):
        run_audit(replace(audit, settings=settings), tmp_path / "run")
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before


def test_chosen_pictures_are_flagged_and_drawn_ones_are_not(drawn: Path, tmp_path: Path) -> None:
    run_audit(build(from_tables(with_scenario(draw="first"))), tmp_path / "run")
    assert rows_of(tmp_path / "run") == [0, 1, 2, 3]
    assert "chosen-pictures" in judge(read_run(tmp_path / "run")).flags
    assert "chosen-pictures" not in judge(read_run(drawn)).flags


@pytest.mark.parametrize("rows", [[], [4], [7, 8, 9], [9, 8], [831, 7, 8, 9, 3]])
def test_rows_in_words_are_the_rows(rows: list[int]) -> None:
    spans = [span.partition("-") for span in describe_rows(rows).split()]
    assert [row for first, _, last in spans for row in range(int(first), int(last or first) + 1)] == rows


def test_a_draw_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scenario\.draw"):
        from_tables(with_scenario(draw="last"))
