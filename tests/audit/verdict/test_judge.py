"""A leak is a leak; that none was found counts only if nothing else can explain it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runs import BLANK, SEEN, defended, failed, hidden, record, run_of, undefended

from gradveil.audit.results import Run
from gradveil.audit.verdict import Finding, judge
from gradveil.core.interval import at_most


def found(run: Run, defense: str = "d") -> Finding:
    (finding,) = (f for f in judge(run).findings if f.tally.defense == defense)
    return finding


def test_nothing_seen_and_everything_in_order_is_no_leak_found_with_its_bound() -> None:
    finding = found(run_of(undefended(20), defended(20)))
    assert finding.verdict == "no leak found"
    assert finding.at_most == pytest.approx(at_most(0, 20))
    assert "13.9" in finding.reasons[0]


def test_one_picture_of_many_by_one_attacker_is_a_leak() -> None:
    one = [record(7, defense="d", attacker="unaware")]
    finding = found(run_of(undefended(300), [r for r in defended(300) if r.key != one[0].key], one))
    assert finding.verdict == "leaks"
    assert finding.tally.leaked == 1


@pytest.mark.parametrize(("leaking", "word"), [(20, "no leak found"), (18, "no leak found"), (17, "inconclusive")])
def test_the_positive_control_needs_nine_in_ten(leaking: int, word: str) -> None:
    run = run_of(undefended(20, leaking), defended(20))
    assert found(run).verdict == word
    check = judge(run).positive
    assert check is not None
    assert (check.hits, check.attempted, check.passed) == (leaking, 20, word == "no leak found")


def test_without_a_positive_control_nothing_is_concluded() -> None:
    finding = found(run_of(defended(20)))
    assert finding.verdict == "inconclusive"
    assert "no positive control" in finding.reasons[0]


def test_a_control_in_the_deployment_regime_is_none() -> None:
    roles = {"easy": {"role": "audited", "regime": "deployment"}}
    assert found(run_of(undefended(20), defended(20), roles=roles)).verdict == "inconclusive"


def test_a_leak_stands_though_the_control_failed() -> None:
    assert found(run_of(undefended(20, 0), defended(20, make=record))).verdict == "leaks"


def test_no_adaptive_attacker_is_not_evaluated() -> None:
    unaware = [r for r in defended(20) if r.attacker == "unaware"]
    finding = found(run_of(undefended(20), unaware))
    assert finding.verdict == "not evaluated"
    assert judge(run_of(undefended(20), unaware)).word == "not evaluated"


@pytest.mark.parametrize(("broken", "word"), [(0, "no leak found"), (4, "no leak found"), (5, "inconclusive")])
def test_more_than_two_percent_failed_is_inconclusive_and_counted(broken: int, word: str) -> None:
    """Of 200 trials; each picture still has a score by the other attacker."""
    trials = defended(100)
    trials[:broken] = [failed(i, defense="d", attacker="unaware") for i in range(broken)]
    finding = found(run_of(undefended(100), trials))
    assert finding.verdict == word
    assert finding.tally.failed == broken
    if word == "inconclusive":
        assert f"{broken} of 200 trials failed" in " ".join(finding.reasons)


def test_a_picture_without_any_score_is_inconclusive() -> None:
    trials = defended(100)
    trials[0], trials[100] = (failed(0, defense="d", attacker=who) for who in ("unaware", "adaptive"))
    finding = found(run_of(undefended(100), trials))
    assert finding.verdict == "inconclusive"
    assert "1 of 100 pictures" in " ".join(finding.reasons)


def test_an_unfinished_run_is_inconclusive() -> None:
    whole = run_of(undefended(20), defended(20))
    run = replace(whole, records=(*whole.records[:-5], *whole.records[:5]))  # as many lines, and five of them twice
    assert judge(run).missing == 5
    assert "5 trials are missing" in " ".join(found(run).reasons)


def test_without_a_gallery_or_a_squared_error_nothing_is_concluded() -> None:
    for keep in ("psnr", "retrieval"):
        run = run_of([_only(keep, r) for r in (*undefended(20), *defended(20))])
        assert found(run).verdict == "inconclusive"


def _only(name: str, one):
    return replace(one, scores={name: one.scores[name]})


def test_identified_but_not_close_is_a_leak_when_chance_cannot_explain_it() -> None:
    """Nearest in a gallery of 1,000, at a squared error that a blank picture has too."""
    near = {"psnr": BLANK, "retrieval": 1.0}
    some = [record(i, defense="d", scores=near, attacker=w) for w in ("unaware", "adaptive") for i in range(3)]
    rest = [r for r in defended(20) if r.client >= "c0003"]
    finding = found(run_of(undefended(20), some, rest))
    assert (finding.tally.leaked, finding.tally.identified) == (0, 3)
    assert finding.verdict == "leaks"
    assert found(run_of(undefended(20), some, rest, gallery=3)).verdict == "no leak found"  # chance explains it


@pytest.mark.parametrize(("above", "word"), [(2.9, "no leak found"), (3.0, "leaks")])
def test_leaked_is_identified_and_three_decibels_over_a_blank_picture(above: float, word: str) -> None:
    one = record(0, defense="d", scores={"psnr": BLANK + above, "retrieval": 1.0})
    rest = [r for r in defended(400) if r.key != one.key]
    assert found(run_of(undefended(400), [one], rest, gallery=99)).verdict == word


def test_an_attack_that_only_returns_its_prior_shows_no_excess() -> None:
    """It shows every picture perfectly, and does so without the update too."""
    prior = [record(i, control="prior") for i in range(20)]
    run = run_of(undefended(20), defended(20, make=record), prior)
    verdict = judge(run)
    assert [f.tally.leaked for f in verdict.findings] == [0, 0]
    assert verdict.word == "inconclusive"  # and its own positive control has failed
    assert verdict.prior is not None
    assert not verdict.prior.passed
    assert "control-identified" in verdict.flags


def test_what_a_control_identifies_does_not_hide_a_leak_that_is_closer() -> None:
    prior = [record(i, control="prior", scores={"psnr": BLANK, "retrieval": 1.0}) for i in range(20)]
    assert found(run_of(undefended(20), defended(20, make=record), prior)).verdict == "leaks"


def test_the_worst_finding_is_the_word_of_the_run() -> None:
    both = run_of(undefended(20), defended(20), defended(20, make=record, defense="none-too-good"))
    assert judge(both).word == "leaks"
    assert judge(run_of(undefended(20), defended(20))).word == "no leak found"
    assert judge(run_of(undefended(20))).word == "leaks"  # nothing but the undefended model


def test_controls_are_neither_cells_of_a_defense_nor_findings() -> None:
    roles = {
        "mine": {"role": "audited", "regime": "deployment"},
        "mine-diagnostic": {"role": "control", "regime": "diagnostic"},
    }
    control = [record(i, scenario="mine-diagnostic") for i in range(20)]
    mine = [hidden(i, scenario="mine", defense="d", attacker=w) for w in ("unaware", "adaptive") for i in range(20)]
    verdict = judge(run_of(control, mine, roles=roles))
    assert [(f.tally.scenario, f.tally.defense) for f in verdict.findings] == [("mine", "d")]
    assert verdict.word == "inconclusive"  # who knows whether the attack works in `mine` without the defense
    assert verdict.positive is not None
    assert verdict.positive.scenario == "mine-diagnostic"
    assert "no-diagnostic" in verdict.flags
    roles["mine-undefended"] = {"role": "control", "regime": "deployment", "control_of": "mine"}
    there = [record(i, scenario="mine-undefended") for i in range(20)]
    assert judge(run_of(control, there, mine, roles=roles)).word == "no leak found"
    nothing = [hidden(i, scenario="mine-undefended") for i in range(20)]
    assert judge(run_of(control, nothing, mine, roles=roles)).word == "inconclusive"


@pytest.mark.parametrize(("pictures", "supported"), [(298, False), (299, True)])
def test_at_most_one_percent_needs_299_pictures(pictures: int, supported: bool) -> None:
    finding = found(run_of(undefended(pictures), defended(pictures)))
    assert finding.supports(0.01) is supported


def test_a_claim_needs_more_than_numbers() -> None:
    finding = found(run_of(undefended(299, 0), defended(299)))
    assert finding.verdict == "inconclusive"
    assert not finding.supports(0.01)


def test_better_seen_means_a_higher_score() -> None:
    run = run_of(undefended(3), [record(3, scores={"psnr": 31.0, "lpips": 0.1, "retrieval": 1.0})],
                 [record(4, scores={"psnr": 29.0, "lpips": 0.4, "retrieval": 1.0})])  # fmt: skip
    worst = found(run, "none").tally.worst
    assert (worst["psnr"].worst, worst["lpips"].worst) == (31.0, 0.1)
    assert worst["lpips"].most == pytest.approx(0.115)
    assert worst["psnr"].most == pytest.approx(30.6)
    assert worst["psnr"].mean == pytest.approx((3 * SEEN + 60) / 5)


@pytest.mark.parametrize(("gallery", "passed"), [(999, True), (9, False)])
def test_identified_pictures_pass_the_positive_control_unless_guessing_could(gallery: int, passed: bool) -> None:
    """Pictures much alike: all are identified, though a blank one is nearly as close."""
    alike = [record(i, scores={"psnr": BLANK + 1, "retrieval": 1.0}) for i in range(20)]
    check = judge(run_of(alike, defended(20), gallery=gallery)).positive
    assert check is not None
    assert check.passed is passed
