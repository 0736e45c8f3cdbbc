"""Ordinary training loops in plain torch: they replay, and what was declared wrongly is named first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ordinary_rounds import ROUNDS, Round, describe
from ordinary_table import HEAD, diagnose_round, read_table, replay_round, tabulate, write_pictures

REPLAYED, NAMED = 55, 0.9  # of all rounds
RENEW = "the table in docs/captures.md is not current: run `python tests/capture/ordinary_table.py`"
NETWORKS = ("ordinary_clients.py", "ordinary_client_networks.py", "ordinary_rounds.py")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("ordinary") / "pictures")


def draws_masks(one: Round) -> bool:
    """What nobody can play again, whatever the order was."""
    return "dropout" in one.says["training"] or "augment" in one.says["training"]


def test_the_clients_use_nothing_of_ours() -> None:
    for name in NETWORKS:
        assert not re.search(r"^\s*(from|import) gradveil", Path(__file__).with_name(name).read_text(), re.MULTILINE)
    assert len(ROUNDS) >= 60
    assert len({describe(one) for one in ROUNDS}) >= 60


def test_rounds_that_are_declared_as_they_were_replay(root: Path, tmp_path: Path) -> None:
    plain = [one for one in ROUNDS if not one.says["training"].get("order") and not draws_masks(one)]
    found = {describe(one): replay_round(one, root, tmp_path / "round.safetensors") for one in plain}
    missed = [name for name, played in found.items() if played.status != "reproduced" or played.error > 1e-3]
    assert not missed
    assert len(plain) >= 50


@pytest.mark.parametrize("cause", ["constants of imagenet", "optimizer was adam", "mode batch", "crop=resize-first"])
def test_what_was_declared_wrongly_is_named(cause: str, root: Path, tmp_path: Path) -> None:
    one = next(one for one in ROUNDS if one.cause == cause)
    found = diagnose_round(one, root, tmp_path / "round.safetensors")
    assert found.names(one), found.named
    assert float(found.after) < 1e-3 < float(found.before)


@pytest.mark.more
def test_the_table_is_current_and_says_what_is_claimed(root: Path) -> None:
    rows, page = tabulate(ROUNDS, root), read_table()
    reproduced = [row for row, one in zip(rows, ROUNDS, strict=True) if _error(cell(row, "replay")) <= 1e-3
                  or (cell(row, "replay") == "alike" and not draws_masks(one))]  # fmt: skip
    named = sum(cell(row, "right") == "yes" for row in rows)
    assert len(reproduced) >= REPLAYED
    assert named >= NAMED * len(rows)
    assert [_plain(row) for row in rows] == [_plain(row) for row in page], RENEW


def test_the_page_has_a_row_for_every_round() -> None:
    page = read_table()
    assert [row[1:10] for row in page] == [describe(one) for one in ROUNDS], RENEW
    assert sum(cell(row, "right") == "yes" for row in page) >= NAMED * len(page)


def cell(row: tuple[str, ...], name: str) -> str:
    return row[HEAD.index(name)]


def _error(text: str) -> float:
    return float(text) if re.match(r"\d", text) else 1.0


def _plain(row: tuple[str, ...]) -> tuple[str, ...]:
    """Without what differs in rounding: fitted numbers, and errors beyond whether they are small."""
    errors = {HEAD.index(name) for name in ("replay", "error before", "error after")}
    return tuple(
        (str(_error(text) <= 1e-3) if re.match(r"\d", text) else text) if place in errors else
        re.sub(r"[\d.,]+", "#", text) if place == HEAD.index("named first") else text
        for place, text in enumerate(row)
    )  # fmt: skip
