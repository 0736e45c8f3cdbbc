"""Two questions, two answers: *bounded* or not, *linkable* or not, and where attacks contradict bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from runs import defended, even_ranks, hidden, line_up, record, run_of, undefended
from test_lineup import CLIENTS, LOW, audited, finding_of, trials

from gradveil.audit.flags import FLAGS
from gradveil.audit.results import Run
from gradveil.audit.verdict import judge, to_json
from gradveil.audit.verdict.certified import read_certificate
from gradveil.report.redact import redact_run

STRONG = {"at_most": 0.018, "kappa": 1 / 1001, "advantage": 0.017, "kind": "gaussian"}
WEAK = {"at_most": 0.138, "kappa": 1 / 1001, "advantage": 0.137, "kind": "gaussian"}


def certified(certificate: Any) -> dict[str, Any]:
    return {"certificates": {"easy": {"d": certificate}}}


def with_limit(run: Run, limit: float) -> Run:
    return replace(run, config={**run.config, "limit_named": limit})


def test_a_certificate_alone_bounds_and_assumes_nothing() -> None:
    found = finding_of(judge(run_of(trials(), **certified(STRONG))))
    assert (found.verdict, found.linkable, found.at_most) == ("bounded", "not linkable", 0.018)
    assert "at most 1.80 % of the pictures are identified" in found.reasons[0]
    assert "No assumption on the attacker is made." in found.reasons[0]
    assert found.reasons[-1] == "By attacks alone: no leak found."


@pytest.mark.parametrize(
    "stated",
    [None, {}, [], "x", WEAK, STRONG | {"kind": "none"}, STRONG | {"at_most": None}, STRONG | {"at_most": -1},
     STRONG | {"at_most": float("nan")}, STRONG | {"at_most": True}, STRONG | {"kappa": 0.5}],
)  # fmt: skip
def test_a_certificate_that_is_none_or_weak_does_not(stated: Any) -> None:
    run = run_of(trials(), **certified(stated))
    found = finding_of(judge(run))
    assert found.verdict == "no leak found"
    assert (found.certificate is not None) == (stated is WEAK)
    assert read_certificate(run_of(trials(), certificates=stated), "easy", "d") is None


def test_the_limit_decides() -> None:
    run = run_of(trials(), **certified(WEAK))
    assert finding_of(judge(with_limit(run, 0.138))).verdict == "bounded"
    assert finding_of(judge(with_limit(run, 0.1379))).verdict == "no leak found"
    low = audited(*line_up(CLIENTS, "d", LOW))
    assert finding_of(judge(with_limit(low, 0.036))).verdict == "no leak found"
    assert "too few to show that 3.6 % or fewer are named" in " ".join(
        finding_of(judge(with_limit(low, 0.036))).reasons
    )


def test_it_needs_no_attack_to_have_worked() -> None:
    """Searches that see nothing without a defense either: the attacks say inconclusive, the line-up does not."""
    seen = [*undefended(CLIENTS, leaking=0), *defended(CLIENTS)]
    found = finding_of(judge(run_of(seen, line_up(CLIENTS), line_up(CLIENTS, "d", LOW))))
    assert found.verdict == "bounded"
    assert found.reasons[-1] == "By attacks alone: inconclusive."
    unaware = [hidden(i, defense="d") for i in range(CLIENTS)]
    found = finding_of(judge(run_of(undefended(CLIENTS), unaware, line_up(CLIENTS), line_up(CLIENTS, "d", LOW))))
    assert (found.verdict, found.reasons[-1]) == ("bounded", "By attacks alone: not evaluated.")


def test_a_leak_overrules_a_bound_and_a_flag_says_that_one_of_both_is_wrong() -> None:
    for bound in ({}, certified(STRONG)):
        low = [line_up(CLIENTS), line_up(CLIENTS, "d", LOW)] if not bound else []
        verdict = judge(run_of(undefended(CLIENTS), defended(CLIENTS, make=record), *low, **bound))
        found = finding_of(verdict)
        assert (found.verdict, found.at_most) == ("leaks", None)
        assert "leaks-and-bounded" in verdict.flags or "attack-above-line-up" in verdict.flags
    assert {FLAGS[name].severity for name in ("leaks-and-bounded", "attack-above-line-up")} == {"serious"}


def test_attacks_above_the_line_up_are_an_error_of_one_of_both() -> None:
    verdict = judge(
        run_of(undefended(CLIENTS), defended(CLIENTS, make=record), line_up(CLIENTS), line_up(CLIENTS, "d", LOW))
    )
    assert "attack-above-line-up" in verdict.flags
    assert not to_json(run_of(trials()), verdict)["findings"][1]["lineup"]["controls"]["passed"]
    below = run_of(undefended(CLIENTS), defended(CLIENTS, make=record), line_up(CLIENTS), line_up(CLIENTS, "d"))
    assert not {"attack-above-line-up", "leaks-and-bounded"} & set(judge(below).flags)


def test_an_attacker_who_knows_the_label_is_held_against_the_candidates_of_the_class() -> None:
    """The line-up names nobody among all, but everybody among the few of the class."""
    of_class = [replace(r, ranks={**r.ranks, "rank-in-class": [1] * 10}) for r in line_up(CLIENTS, "d", LOW)]
    verdict = judge(run_of(undefended(CLIENTS), defended(CLIENTS, make=record), line_up(CLIENTS), of_class))
    assert "attack-above-line-up" not in verdict.flags


def test_more_than_the_certificate_allows_bounds_nothing() -> None:
    named = line_up(CLIENTS, "d", [[1] * 5 + own[:5] for own in LOW])
    found = finding_of(judge(audited(*named, **certified(STRONG))))
    assert found.verdict == "no leak found"
    assert "more than the certificate allows" in " ".join(found.reasons)


def test_a_certificate_of_updates_that_are_not_what_was_configured_bounds_nothing() -> None:
    for flag in ("line-up-off", "line-up-not-replayed"):
        found = finding_of(judge(audited(*line_up(CLIENTS, "d", LOW, flags=(flag,)), **certified(STRONG))))
        assert found.verdict != "bounded"
        assert found.linkable == "not evaluated"


def test_a_certificate_without_a_line_up_needs_updates_that_the_clients_explain() -> None:
    other = {"explained": {"reconstruction": 0.9, "truth": 0.1}}
    strange = [replace(r, **other) if r.defense == "d" else r for r in trials()]
    assert finding_of(judge(run_of(strange, **certified(STRONG)))).verdict == "inconclusive"


def test_no_leak_found_goes_on_where_the_line_up_is_high() -> None:
    found = finding_of(judge(audited(*line_up(CLIENTS, "d"))))
    assert (found.verdict, found.linkable) == ("no leak found", "linkable")
    assert "But the update still contains the picture, and a stronger attacker may see more" in found.reasons[-1]
    assert "names 80 of 80 pictures among 1,001 candidates (95 %: 95 % to 100 %)" in found.reasons[-1]


def test_the_other_words_say_what_the_line_up_says() -> None:
    seen = [*undefended(CLIENTS, leaking=0), *defended(CLIENTS)]
    found = finding_of(judge(run_of(seen, line_up(CLIENTS), line_up(CLIENTS, "d"))))
    assert found.verdict == "inconclusive"
    assert found.reasons[-1].endswith(": the update still contains the picture.")
    unaware = [hidden(i, defense="d") for i in range(CLIENTS)]
    found = finding_of(judge(run_of(undefended(CLIENTS), unaware, line_up(CLIENTS), line_up(CLIENTS, "d"))))
    assert found.verdict == "not evaluated"
    assert "the update still contains the picture" in found.reasons[-1]


def test_what_linkable_means_is_said_for_an_officer() -> None:
    found = finding_of(judge(audited(*line_up(CLIENTS, "d"))))
    assert found.link_sentence.startswith("Linkable: 100 % of the pictures; near copies: 100 % (saved again as JPEG). ")
    assert "Nothing is drawn at random" in found.link_sentence
    noisy = [replace(r, flags=("changes-with-each-draw",)) for r in trials()]
    drawn = finding_of(judge(run_of(noisy, line_up(CLIENTS), line_up(CLIENTS, "d"))))
    assert "Nothing is drawn at random" not in drawn.link_sentence
    assert "it does not mean that the picture can be drawn from the update" in drawn.link_sentence
    none = finding_of(judge(run_of(trials())))
    assert none.link_sentence == "Linkable: not evaluated, no line-up was held."


def test_few_trials_leave_the_second_question_open() -> None:
    found = finding_of(judge(audited(*line_up(CLIENTS, "d", even_ranks(CLIENTS, 1)))))
    assert found.linkable == "not evaluated"
    assert "0 of 8 pictures among 1,001 candidates (95 %: 0 % to 37 %) leave both answers open" in found.link_sentence


def test_the_run_is_bounded_if_all_its_defenses_are() -> None:
    assert judge(audited(*line_up(CLIENTS, "d", LOW))).word == "bounded"
    assert judge(audited(*line_up(CLIENTS, "d"))).word == "no leak found"


def test_a_bound_supports_claims_as_large_as_it_is() -> None:
    found = finding_of(judge(run_of(trials(), **certified(STRONG))))
    assert found.supports(0.018)
    assert not found.supports(0.01)


def test_the_epsilon_that_the_line_up_shows() -> None:
    found = finding_of(judge(audited(*line_up(CLIENTS, "d"))))
    replaced, added = (found.bounds.epsilon(n) for n in ("replace-one", "add-remove"))
    assert replaced == pytest.approx(10.17, abs=0.01)  # log(0.9632 * 1000 / 0.0368)
    assert added == pytest.approx(6.87, abs=0.01)  # log(0.9632 * 1001)
    assert finding_of(judge(audited(*line_up(CLIENTS, "d", LOW)))).bounds.epsilon("replace-one") == 0.0


def test_for_machines() -> None:
    run = audited(*line_up(CLIENTS, "d"), **certified(WEAK))
    found = next(f for f in to_json(run, judge(run))["findings"] if f["defense"] == "d")
    assert found["linkable"] == "linkable"
    assert found["certificate"] == WEAK | {"advantage": WEAK["at_most"] - WEAK["kappa"]}
    keys = {
        "hits",
        "of",
        "candidates",
        "low",
        "high",
        "chance",
        "exact",
        "near_hits",
        "kind",
        "top",
        "in_class",
        "controls",
    }
    assert keys <= found["lineup"].keys()
    assert not found["lineup"]["controls"]["passed"]  # it names more than the certificate allows


def test_an_older_run_reads_as_before() -> None:
    run = run_of(trials())
    verdict = judge(run)
    found = to_json(run, verdict)["findings"][1]
    assert verdict.word == "no leak found"
    assert (found["lineup"], found["certificate"], found["linkable"]) == (None, None, "not evaluated")
    assert "ine-up" not in " ".join(finding_of(verdict).reasons)


def test_the_line_up_is_no_attack() -> None:
    verdict = judge(audited(*line_up(CLIENTS, "d", LOW)))
    assert "line-up" not in verdict.under
    assert {one.attack for finding in verdict.findings for one in finding.evidence} == {"a"}
    assert [check.attack for check in verdict.each_positive] == ["a"]


def test_a_redacted_copy_has_the_same_word() -> None:
    for run in (audited(*line_up(CLIENTS, "d", LOW)), with_limit(run_of(trials(), **certified(WEAK)), 0.2)):
        shown = redact_run(run)
        assert judge(shown).word == judge(run).word == "bounded"
        assert [f.linkable for f in judge(shown).findings] == [f.linkable for f in judge(run).findings]


def test_flags_of_a_line_up_are_flags_of_the_run() -> None:
    run = audited(*line_up(CLIENTS, "d", LOW, flags=("line-up-off",)))
    assert "line-up-off" in judge(run).flags
    assert "line-up-off" in to_json(run, judge(run))["flags"]
    assert FLAGS["line-up-off"].severity == "serious"


def test_fewer_candidates_than_the_certificate_counts_are_no_contradiction() -> None:
    """Among 11 candidates guessing names 9 %, where the certificate is about 1,001."""
    ranks = even_ranks(CLIENTS, candidates=11)
    guessed = [[1, *own[1:]] for own in ranks]
    low = [
        replace(r, ranks={**r.ranks, "candidates": [11], "rank-of-another": [5]})
        for r in line_up(CLIENTS, "d", guessed)
    ]
    found = finding_of(judge(audited(*low, **certified(STRONG))))
    assert found.bounds.bounded_by == "certificate", found.reasons
    one = read_certificate(run_of(trials(), **certified(STRONG)), "easy", "d")
    assert one is not None
    assert one.at(1 / 1001) == pytest.approx(0.018)
    assert one.at(1 / 11) == pytest.approx(0.366, abs=0.001)
    assert replace(one, kappa=0.0).at(1 / 11) == 1
    assert replace(one, kind="pld").at(2 / 1001) == pytest.approx(0.036)
