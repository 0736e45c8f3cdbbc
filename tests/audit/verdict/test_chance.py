"""Controls against chance: a picture counts once, however many attacks make the same gray blur of it."""

from __future__ import annotations

import pytest
from runs import UNSEEN, defended, hidden, record, run_of, undefended
from scipy.stats import binom

from gradveil.audit.verdict import judge
from gradveil.audit.verdict.checks import check_negative
from gradveil.audit.verdict.negative_control import beats_guessing
from gradveil.experiment.record import Record

SEARCH = "retrieval-top5"


def guess(client: int, hit: bool, **changes) -> Record:
    scores = {"psnr": UNSEEN, "retrieval": 0.0, SEARCH: float(hit)}
    return record(client, **{"scores": scores, "control": "prior", **changes})


def by_all(count: int, lucky: int, **changes) -> list[Record]:
    """What three attacks make without an update, of which the first `lucky` pictures are found by every one."""
    kinds = [(attack, control) for attack in ("a", "b", "c") for control in ("prior", "random")]
    return [guess(i, i < lucky, attack=a, control=c, **changes) for a, c in kinds for i in range(count)]


def test_one_gray_picture_that_every_control_finds_is_luck():
    group = defended(8, make=lambda i, **c: guess(i, False, **{**c, "control": ""}))
    verdict = judge(run_of(undefended(8), group, by_all(8, lucky=1)))
    assert "control-identified" not in verdict.flags
    assert all(search.believed for f in verdict.findings for search in f.tally.searches)


def test_what_nobody_could_guess_so_often_is_flagged():
    group = defended(8, make=lambda i, **c: guess(i, False, **{**c, "control": ""}))
    verdict = judge(run_of(undefended(8), group, by_all(8, lucky=4)))
    assert "control-identified" in verdict.flags


@pytest.mark.parametrize("count", [1, 8, 32, 200])
@pytest.mark.parametrize("chance", [0.001, 0.005, 0.1])
def test_the_line_is_where_the_binomial_tail_falls_below_one_percent(count: int, chance: float):
    for hits in range(min(count, 40) + 1):
        records = [guess(i, i < hits) for i in range(count)]
        assert beats_guessing(records, SEARCH, chance) == (binom.sf(hits - 1, count, chance) < 0.01)


def test_more_tries_at_a_picture_are_more_luck():
    once = [guess(i, i < 1) for i in range(8)]
    twenty_times = [guess(i, i < 1, attack=str(n)) for n in range(20) for i in range(8)]
    assert beats_guessing(once, SEARCH, 0.001)
    assert not beats_guessing(twenty_times, SEARCH, 0.001)


def test_the_same_lucky_picture_in_many_scenarios_is_one_piece_of_luck():
    assert not beats_guessing([r for n in range(9) for r in by_all(8, 1, scenario=f"s{n}")], SEARCH, 0.005)


@pytest.mark.parametrize(("scenarios", "chance", "beaten"), [(1, 0.005, False), (1, 0.0005, True),
                                                            (9, 0.0005, False), (9, 0.0001, True)])  # fmt: skip
def test_several_scenarios_share_one_chance_of_error(scenarios: int, chance: float, beaten: bool):
    """One hit of 8 by luck: 3.9 %, 0.4 % and 0.08 %; nine scenarios have 0.11 % each."""
    records = [guess(i, i < 1, scenario=f"s{n}") for n in range(scenarios) for i in range(8)]
    assert beats_guessing(records, SEARCH, chance) is beaten


def test_the_nearest_is_held_to_the_same_line():
    """One of eight, by three attacks alike: each kind of control passes."""
    prior = [(record if i < 1 else hidden)(i, attack=a, control="prior") for a in "abc" for i in range(8)]
    alike, found = (
        check_negative(run_of(some), "prior") for some in (prior, [record(i, control="prior") for i in range(4)])
    )
    assert alike is not None
    assert alike.passed
    assert found is not None
    assert not found.passed


def test_what_was_not_measured_beats_nothing():
    assert not beats_guessing([], SEARCH, 0.005)
    assert not beats_guessing([hidden(0, control="prior")], SEARCH, 0.005)
