"""What makes an attack no evidence, one reason at a time: everything else about the run is as it should be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runs import defended, failed, hidden, record, run_of, undefended

from gradveil.audit.results import Run
from gradveil.audit.verdict import Finding, judge, to_json
from gradveil.experiment.record import NO_TRUTH, Record

EASY = {"role": "control", "regime": "diagnostic", "batch_size": 1, "labels": "known"}
HARD = {"role": "audited", "regime": "deployment", "batch_size": 1, "labels": "known"}
ROLES = {"easy": EASY, "hard": HARD}


def in_hard(records: list[Record]) -> list[Record]:
    return [replace(one, scenario="hard", key=one.key.replace("easy/", "hard/", 1)) for one in records]


def hard_run(recovered: int = 20, without_defense: int = 20, **more: object) -> Run:
    """Twenty pictures of which nothing leaks under `d`; the easiest case is a scenario of its own."""
    return run_of(undefended(20, recovered), in_hard(undefended(20, without_defense)), in_hard(defended(20)),
                  roles=ROLES, **more)  # type: ignore[arg-type]  # fmt: skip


def under(run: Run, defense: str = "d") -> Finding:
    (found,) = (one for one in judge(run).findings if one.tally.defense == defense and one.tally.role == "audited")
    return found


def change(run: Run, select, **changes: object) -> Run:
    return replace(run, records=tuple(replace(r, **changes) if select(r) else r for r in run.records))


def test_where_nothing_is_wrong_the_attack_counts() -> None:
    found = under(hard_run())
    assert found.verdict == "no leak found"
    assert found.reasons[1] == "Evidence: a."
    (one,) = found.evidence
    assert (one.attack, one.attacker, one.counts, one.doubts) == ("a", "adaptive", True, ())


def test_an_attack_that_fails_in_the_easiest_case_is_no_evidence_wherever_else_it_works() -> None:
    found = under(hard_run(recovered=17))
    assert found.verdict == "inconclusive"
    assert found.reasons == (
        "a is no evidence: without a defense a recovers 17 of 20 pictures, but at least 90 % are needed.",
    )
    assert under(hard_run(recovered=18)).verdict == "no leak found"


@pytest.mark.parametrize(("works", "word"), [(1, "inconclusive"), (8, "no leak found")])
def test_what_may_have_leaked_unseen_is_less_than_what_the_attack_surely_sees(works: int, word: str) -> None:
    """0 of 20 leave open 13.9 %; 8 of 20 are surely more than that, 1 of 20 is not."""
    found = under(hard_run(without_defense=works))
    assert found.verdict == word
    assert ("may have leaked unseen" in " ".join(found.reasons)) == (word == "inconclusive")


def test_an_attack_without_an_easiest_case_has_no_control() -> None:
    run = run_of(in_hard(undefended(20)), in_hard(defended(20)), roles={"hard": HARD})
    assert "it has no positive control" in " ".join(under(run).reasons)


def test_an_attack_that_was_never_tried_here_without_the_defense_says_nothing_here() -> None:
    run = run_of(undefended(20), in_hard(defended(20)), roles=ROLES)
    assert "it was not tried without a defense in this scenario" in " ".join(under(run).reasons)


def test_an_attack_that_takes_no_account_of_a_defense_is_no_test_of_it() -> None:
    assert "takes no account of a defense" in " ".join(under(hard_run(uses={"a": []})).reasons)
    assert under(hard_run(uses={"a": ["surrogate"]})).verdict == "no leak found"


@pytest.mark.parametrize("without", ["psnr", "retrieval"])
def test_a_picture_without_a_full_score_is_not_counted_as_seen(without: str) -> None:
    run = hard_run()
    scores = {"psnr": 11.0, "retrieval": 0.0, "ssim": 0.1}
    del scores[without]
    run = change(run, lambda r: (r.attacker, r.client) == ("adaptive", "c0003"), scores=scores)
    found = under(run)
    assert found.verdict == "inconclusive"
    assert "it has a full score for 19 of 20 pictures" in " ".join(found.reasons)


def test_one_failed_trial_of_twenty_is_too_many() -> None:
    run = hard_run()
    lost = in_hard([failed(3, defense="d", attacker="adaptive")])[0]
    records = tuple(lost if r.key == lost.key else r for r in run.records)
    found = under(replace(run, records=records))
    assert found.verdict == "inconclusive"
    assert "a is no evidence: 1 of 20 trials failed" in " ".join(found.reasons)


@pytest.mark.parametrize(("count", "word"), [(5, "no leak found"), (6, "inconclusive")])
def test_a_quarter_of_the_searches_may_stop_early_and_no_more(count: int, word: str) -> None:
    stopped = {f"c{client:04d}" for client in range(count)}
    run = change(hard_run(), lambda r: r.attacker == "adaptive" and r.client in stopped, flags=("did-not-converge",))
    found = under(run)
    assert found.verdict == word
    assert ("6 of 20 searches had not converged" in " ".join(found.reasons)) == (word == "inconclusive")


def doubled(count: int, leaking: int, loss: float) -> list[Record]:
    return [replace((record if i < leaking else hidden)(i, control="doubled"), loss=loss) for i in range(count)]


@pytest.mark.parametrize(
    ("leaking", "leaking_doubled", "loss", "converged"),
    [
        (20, 20, 0.1, True),
        (20, 20, 0.001, True),  # nothing is left to find
        (10, 10, 0.1, True),
        (10, 10, 0.0995, True),
        (10, 10, 0.098, False),
        (10, 10, 0.102, False),
        (10, 11, 0.1, True),  # within half the width of the interval
        (10, 15, 0.1, False),
        (10, 5, 0.1, False),
    ],
)
def test_twice_the_steps_see_and_explain_the_same(
    leaking: int, leaking_doubled: int, loss: float, converged: bool
) -> None:
    run = run_of(undefended(20, leaking), doubled(20, leaking_doubled, loss), defended(20))
    verdict = judge(run)
    (found,) = verdict.convergence
    assert (found.leaked, found.leaked_doubled, found.of) == (leaking, leaking_doubled, 20)
    assert found.loss == pytest.approx(0.1)
    assert found.loss_doubled == pytest.approx(loss)
    assert found.converged is converged
    assert ("not-converged" in verdict.flags) is not converged
    doubts = " ".join(doubt for one in under(run).evidence for doubt in one.doubts)
    assert ("with twice the steps it recovers something else" in doubts) is not converged


def test_convergence_compares_the_same_pictures() -> None:
    run = run_of(undefended(20), doubled(12, 12, 0.1), defended(20))
    (found,) = judge(run).convergence
    assert (found.leaked, found.of) == (12, 12)


def test_the_verdict_for_machines_says_which_attack_counts_and_why_not() -> None:
    run = hard_run(recovered=17)
    written = to_json(run, judge(run))
    (finding,) = (one for one in written["findings"] if one["defense"] == "d")
    (one,) = finding["evidence"]
    assert (one["attack"], one["attacker"], one["counts"]) == ("a", "adaptive", False)
    assert one["doubts"] == ["without a defense a recovers 17 of 20 pictures, but at least 90 % are needed"]
    assert written["controls"]["positive"]["said"].startswith("without a defense these attacks recover 17 of 20")
    assert written["controls"]["positive"]["passed"] is False
    assert [check["said"] for check in written["each_positive"]] == one["doubts"]
    assert written["under"].startswith("a (10 steps, 2 restarts")


def test_a_run_that_lost_its_seal_does_not_reassure() -> None:
    found = under(hard_run(sealed_again=[{"time": "now", "by": "the report", "problem": "seal.json was missing"}]))
    assert found.verdict == "inconclusive"
    assert found.reasons == (
        "The seal was lost or broken and made again: it is unknown whether the journal is as the run wrote it.",
    )


def test_the_control_of_a_sequence_is_its_first_clients_and_else_all_of_them() -> None:
    def attempted(**more: object) -> int:
        (check,) = judge(hard_run(**more)).each_positive
        return check.attempted

    assert attempted() == attempted(shard=4) == attempted(order=["a"]) == 20
    assert attempted(shard=4, order=["a"]) == 4


def test_a_variation_is_aside_and_what_was_asked_about_is_not() -> None:
    other = [replace(one, scenario="other", key=one.key.replace("hard/", "other/", 1)) for one in in_hard(defended(20))]
    roles = {**ROLES, "other": {**HARD, "role": "variation"}}
    run = run_of(undefended(20), in_hard(undefended(20)), in_hard(defended(20)), other, roles=roles)
    aside = {one.tally.scenario: one.tally.is_aside for one in judge(run).findings}
    assert aside == {"hard": False, "other": True}


def test_a_cell_counts_what_it_tried_rebuilt_and_scored() -> None:
    unknown = replace(record(5, defense="d"), flags=(NO_TRUTH,))
    run = run_of(undefended(20), [record(0, defense="d"), hidden(6, defense="d"), failed(1, defense="d"), unknown])
    (cell,) = (one for one in judge(run).cells if one.defense == "d")
    assert (cell.attempted, cell.failed, cell.reconstructions, cell.scored) == (4, 1, 3, 2)


ODD = {
    "model": {"truth": 0.2, "reconstruction": 0.8},
    "nothing": {"truth": -0.7, "reconstruction": -0.9},
    "plain": {"truth": 0.3, "plain": 0.9},
    "lacking": {"truth": 0.3, "repeated": 0.7},
    "zeroed": {"truth": 0.3, "zeroed": 0.7},
    "received": {"truth": 0.9, "replay": 0.5},
    "scores": {"known": 0.5},
    "given": {"wrong": 1.0},
}


@pytest.mark.parametrize("failure", ODD)
@pytest.mark.parametrize(("informed", "word"), [(True, "inconclusive"), (False, "no leak found")])
def test_what_one_attack_says_of_the_client_counts_whatever_another_shows(
    failure: str, informed: bool, word: str
) -> None:
    """Of an attack that takes no account of a defense its copy of the client need not be right."""

    def by_b(records: list[Record]) -> list[Record]:
        return [replace(r, attack="b", key=r.key.replace("/a/", "/b/", 1)) for r in records]

    groups = [undefended(20), in_hard(undefended(20)), in_hard(defended(20))]
    run = run_of(*groups, *map(by_b, groups), roles=ROLES, uses={"a": ["defense"], "b": ["defense"] * informed})
    assert under(run).verdict == "no leak found"
    found = under(change(run, lambda r: (r.attack, r.attacker) == ("b", "adaptive"),
                         explained={"reconstruction": 0.0, "truth": 1.0, **ODD[failure]}))  # fmt: skip
    assert [one.oracle.failure for one in found.evidence if one.oracle] == ["", failure]
    assert found.verdict == word


@pytest.mark.parametrize(
    ("searches", "word"), [(["a"], "inconclusive"), ([], "no leak found"), (None, "no leak found")]
)
def test_a_search_that_no_catalogue_has_must_come_to_its_end_too(searches: list[str] | None, word: str) -> None:
    run = hard_run(**({} if searches is None else {"searches": searches}))
    kept = tuple(r for r in run.records if r.control != "doubled")
    plan = {**run.plan, "cells": [cell for cell in run.plan["cells"] if cell[3] != "doubled"]}
    own = {**run.config, "attack": {"a": {"name": "Mine", "value": "Mine()"}}}
    found = under(replace(run, records=kept, config=own, provenance={**run.provenance, "plan": plan}))
    assert found.verdict == word
    assert ("whether more steps see more" in " ".join(found.reasons)) == (word == "inconclusive")


def test_unusual_pictures_come_last_whatever_leaked() -> None:
    def under_name(scenario: str, records: list[Record]) -> list[Record]:
        return [replace(r, scenario=scenario, key=r.key.replace("easy/", f"{scenario}/", 1)) for r in records]

    roles = {**ROLES, "a-odd": {**HARD, "role": "canaries"}, "b-other": {**HARD, "role": "variation"}}
    names = ("a-odd", "b-other", "hard")
    run = run_of(undefended(20), *(under_name(name, undefended(20)) for name in names), roles=roles)
    assert [one.tally.scenario for one in judge(run).findings] == ["hard", "b-other", "a-odd"]
