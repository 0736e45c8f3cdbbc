"""Every number of a check is what was counted, and a bound or an interval stands only where there is one."""

from __future__ import annotations

import pytest
from runs import defended, failed, hidden, record, run_of, undefended

from gradveil.audit.results import Run
from gradveil.audit.verdict import judge, to_json
from gradveil.audit.verdict.checks import check_negative
from gradveil.core.interval import rate_interval


def blind(count: int, hits: int, broken: int = 0, control: str = "prior", **changes: object) -> list:
    """What attacks make of pictures whose updates they have not seen."""
    made = [(record if i < hits else hidden)(i, control=control, **changes) for i in range(count)]
    return made + [failed(count + i, control=control, **changes) for i in range(broken)]


def test_a_negative_control_counts_what_it_scored_and_what_failed() -> None:
    check = check_negative(run_of(undefended(8), blind(20, 1, broken=3)), "prior")
    assert check is not None
    between = rate_interval(1, 20)
    assert (check.attempted, check.failed, check.hits, check.rate) == (20, 3, 1, 0.05)
    assert (check.low, check.high) == (between.low, between.high)
    assert check.passed is True  # luck finds one of 20 among 1,000 in 2 % of the cases
    assert check.message == "1 of 20 identified (random guessing: 0.10 %)"
    check = check_negative(run_of(undefended(8), blind(20, 2)), "prior")
    assert check is not None
    assert check.passed is False
    assert check.message.startswith("2 of 20 identified (random guessing: 0.10 %): more than guessing explains")


@pytest.mark.parametrize(("hits", "passed"), [(0, True), (1, False)])
def test_it_passes_as_long_as_guessing_explains_it(hits: int, passed: bool) -> None:
    check = check_negative(run_of(undefended(8), blind(8, hits), gallery=9), "prior")
    assert check is not None
    assert check.passed is True  # among ten one of eight is luck
    check = check_negative(run_of(undefended(8), blind(8, hits), gallery=999), "prior")
    assert check is not None
    assert check.passed is passed
    assert check.message.startswith(f"{hits} of 8 identified (random guessing: 0.10 %)")


def test_without_a_gallery_everything_may_be_luck() -> None:
    check = check_negative(run_of(undefended(8), blind(8, 8), gallery=0), "prior")
    assert check is not None
    assert check.passed
    assert "random guessing: 100.00 %" in check.message


def test_each_control_is_counted_by_itself_and_names_its_scenarios() -> None:
    run = run_of(undefended(8), blind(8, 0), blind(9, 0, control="random"), blind(9, 0, control="random", scenario="b"))
    counted = {kind: check_negative(run, kind) for kind in ("prior", "random", "another")}
    assert counted["another"] is None
    assert [one.attempted for one in counted.values() if one] == [8, 18]
    assert [one.scenario for one in counted.values() if one] == ["easy", "easy, b"]
    assert check_negative(run_of(undefended(8), [failed(0, control="prior")]), "prior") is None


def findings(run: Run) -> dict[str, dict]:
    return {one["defense"]: one for one in to_json(run, judge(run))["findings"]}


def test_an_interval_stands_where_something_leaked_or_nothing_did_and_a_bound_only_there() -> None:
    leaks = findings(run_of(undefended(20), defended(20)))
    between = rate_interval(20, 20)
    assert (leaks["none"]["low"], leaks["none"]["high"], leaks["none"]["at_most"]) == (between.low, between.high, None)
    assert (leaks["d"]["verdict"], leaks["d"]["low"]) == ("no leak found", 0.0)
    assert leaks["d"]["high"] == rate_interval(0, 20).high
    assert leaks["d"]["at_most"] < leaks["d"]["high"]
    unknown = findings(run_of(undefended(20, 3), defended(20)))["d"]
    assert (unknown["verdict"], unknown["low"], unknown["high"], unknown["at_most"]) == ("inconclusive", *[None] * 3)


def test_the_positive_control_for_machines_has_its_share_and_interval() -> None:
    run = run_of(undefended(20, 17), defended(20))
    (check,) = to_json(run, judge(run))["each_positive"]
    between = rate_interval(17, 20)
    assert {name: check[name] for name in ("scenario", "attempted", "failed", "hits", "rate", "low", "high")} == {
        "scenario": "easy", "attempted": 20, "failed": 0, "hits": 17, "rate": 0.85, "low": between.low,
        "high": between.high,
    }  # fmt: skip
    assert (check["passed"], check["attack"]) == (False, "a")


@pytest.mark.parametrize("claim", [0.01, 0.9])
def test_a_claim_is_in_every_finding_and_supported_by_a_bound_alone(claim: float) -> None:
    run = run_of(undefended(20), defended(20))
    assert all("claim" not in one for one in findings(run).values())
    written = {one["defense"]: one["claim"] for one in to_json(run, judge(run), claim)["findings"]}
    assert written == {
        "none": {"at_most": claim, "supported": False},
        "d": {"at_most": claim, "supported": claim == 0.9},
    }
