"""What is counted of a line-up, and what each of its controls catches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from runs import ROLES, even_ranks, failed, hidden, line_up, lined_up, record, run_of

from gradveil.audit.results import Run
from gradveil.audit.verdict import Finding, Verdict, judge
from gradveil.audit.verdict.lineup import collect_line_ups, count_line_up
from gradveil.core.interval import at_most, rate_interval
from gradveil.experiment.record import Record

CLIENTS = 8


def finding_of(verdict: Verdict, defense: str = "d") -> Finding:
    return next(finding for finding in verdict.findings if finding.tally.defense == defense)


def trials(count: int = CLIENTS, make: Any = hidden) -> list[Record]:
    """Attacks that work without a defense and see nothing with it."""
    defended = [make(i, defense="d", attacker=who) for who in ("unaware", "adaptive") for i in range(count)]
    return [*(record(i) for i in range(count)), *defended]


def audited(*defended: Record, undefended: list[Record] | None = None, **provenance: Any) -> Run:
    """Line-ups beside attacks that see nothing of defense `d`."""
    control = line_up(CLIENTS) if undefended is None else undefended
    return run_of(trials(), control, list(defended), **provenance)


LOW = even_ranks(CLIENTS)


def test_counts_trials_and_their_interval() -> None:
    ranks = [[1, 1, 7], [1, 2, 3], [40, 1, 1001]]
    result = count_line_up(line_up(3, "d", ranks))
    assert result is not None
    between = rate_interval(4, 9)
    assert (result.hits, result.of, result.candidates, result.kind) == (4, 9, 1001, "exact")
    assert (result.own.share(), result.own.interval()) == (4 / 9, between)
    assert result.own.at_most == at_most(4, 9)
    assert result.own.chance == pytest.approx(1 / 1001)
    stated = result.to_json()
    assert (stated["low"], stated["high"]) == (between.low, between.high)
    assert stated["near_hits"] == {"jpeg": 4, "resized": 4, "brighter": 4}
    assert stated["in_class"]["hits"] == 4
    assert stated["in_class"]["candidates"] == 90
    assert [result.own.hits(top) for top in (1, 2, 3, 7, 40, 1001)] == [4, 5, 6, 7, 8, 9]


def test_what_leaves_beside_the_update_may_name_more() -> None:
    """Statistics of normalization have no noise, and the line-up does not look at them."""
    found = finding_of(judge(audited(*line_up(CLIENTS, "d", LOW, flags=("line-up-beside",)))))
    assert (found.verdict, found.linkable, found.bounds.at_most) == ("no leak found", "not evaluated", None)
    assert "by the update alone; what leaves beside it may name more" in " ".join(found.reasons)
    high = finding_of(judge(audited(*line_up(CLIENTS, "d", flags=("line-up-beside",)))))
    assert high.linkable == "linkable"


def test_pictures_of_one_update_are_one_draw_and_stand_ins_are_draws_of_their_own() -> None:
    records = [
        lined_up(client, [rank, 5], example=example) for client in range(2) for example, rank in enumerate((1, 3))
    ]
    result = count_line_up(records)
    assert result is not None
    assert result.own.ranks == ((1, 3), (1, 3), (5,), (5,), (5,), (5,))
    assert (result.hits, result.of) == (2, 8)
    assert result.own.share() == pytest.approx(1 / 6)
    assert result.own.interval() == rate_interval(1, 6)


def test_a_class_of_one_picture_is_no_line_up() -> None:
    alone = [replace(r, ranks={**r.ranks, "candidates-in-class": [1]}) for r in line_up(3)]
    result = count_line_up(alone)
    assert result is not None
    assert result.in_class is None


def test_the_best_of_several_guesses_is_the_ceiling_of_as_many_attacks() -> None:
    ranks = [[1], [2], [3], [4], [900], [901], [902], [903]]
    result = count_line_up(line_up(8, "d", ranks), top=4, searched=5)
    assert result is not None
    assert result.ceiling(1) == rate_interval(1, 8).high
    assert result.ceiling(4) == rate_interval(4, 8).high
    assert sorted(result.to_json()["top"]) == ["20", "4"]
    assert result.to_json()["top"]["4"]["hits"] == 4


@pytest.mark.parametrize(
    ("flag", "kind"), [("line-up-bound", "bound"), ("line-up-estimated", "estimated"), ("x", "exact")]
)
def test_one_record_that_is_less_than_exact_makes_the_whole_so(flag: str, kind: str) -> None:
    records = [*line_up(3), lined_up(3, flags=(flag,))]
    result = count_line_up(records)
    assert result is not None
    assert result.kind == kind


def test_of_a_line_that_is_there_twice_the_one_that_names_more_counts() -> None:
    records = [lined_up(0, [5, 5]), lined_up(0, [1, 5])]
    for order in (records, records[::-1]):
        (own,) = collect_line_ups(run_of(trials(), order)).values()
        assert [r.ranks["rank"] for r in own] == [[1, 5]]


def test_a_line_up_that_names_few_and_passes_its_controls_bounds() -> None:
    found = finding_of(judge(audited(*line_up(CLIENTS, "d", LOW))))
    assert (found.verdict, found.linkable) == ("bounded", "not linkable")
    assert found.at_most == at_most(0, 80)
    assert found.bounds.doubts.all == ()
    assert "no attacker who guesses among such pictures names more" in found.reasons[0]


def changed(**ranks: list[int]) -> list[Record]:
    """The line-up with one list of ranks changed in every record."""
    names = {name.replace("_", "-"): given for name, given in ranks.items()}
    return [replace(r, ranks={**r.ranks, **names}) for r in line_up(CLIENTS, "d", LOW)]


WRONG: dict[str, tuple[list[Record], list[Record] | None, str]] = {
    "undefended names half": (
        line_up(CLIENTS, "d", LOW),
        line_up(CLIENTS, ranks=[[1, 900], [1, 300]] * 4),
        "without a defense it names only 8 of 16",
    ),
    "undefended has two trials": (line_up(CLIENTS, "d", LOW), line_up(2, ranks=[[1], [1]]), "held for 2 pictures only"),
    "no undefended": (line_up(CLIENTS, "d", LOW), [], "not held without a defense"),
    "undefended is off": (line_up(CLIENTS, "d", LOW), line_up(CLIENTS, flags=("line-up-off",)), "without a defense: "),
    "another is named": (changed(rank_of_another=[1]), None, "by the update of another picture it names 8 of 8"),
    "off": (line_up(CLIENTS, "d", LOW, flags=("line-up-off",)), None, "under the defense as configured"),
    "not replayed": (line_up(CLIENTS, "d", LOW, flags=("line-up-not-replayed",)), None, "not what the client sends"),
    "one failed": (
        [*line_up(CLIENTS - 1, "d", LOW[1:]), failed(7, defense="d", attack="line-up", control="lineup")],
        None,
        "it failed for 1 of 8",
    ),
    "last of all": (
        line_up(CLIENTS, "d", [[1001 - at] * 10 for at in range(CLIENTS)]),
        None,
        "lower than guessing does",
    ),
    "the same rank": (line_up(CLIENTS, "d", [[200 + at for at in range(10)]] * CLIENTS), None, "again and again"),
    "one rank in every trial": (line_up(CLIENTS, "d", [[300 + at] * 10 for at in range(CLIENTS)]), None, "again and"),
    "the same rank of single trials": (
        [replace(r, ranks={**r.ranks, "rank-of-another": [7]}) for r in line_up(CLIENTS, "d", [[300]] * CLIENTS)],
        None,
        "again and again",
    ),
    "no ranks": (changed(rank=[]), None, "hold no ranks"),
    "impossible ranks": (changed(rank=[5000, *LOW[0]]), None, "hold no ranks"),
    "no candidates": (changed(candidates=[]), None, "hold no ranks"),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_control_that_failed_bounds_nothing(case: str) -> None:
    defended, undefended, why = WRONG[case]
    found = finding_of(judge(audited(*defended, undefended=undefended)))
    assert found.bounds.bounded_by is None
    assert found.verdict != "bounded"
    assert found.linkable == "not evaluated"
    assert why in " ".join(found.reasons)


def test_short_gradients_rank_in_the_middle_again_and_again() -> None:
    """A picture that the model is sure of moves nothing: long ones are above or below it, as the noise falls."""
    ranks = [[300 + (7 * client + 3 * at) % 12 for at in range(10)] for client in range(CLIENTS)]
    found = finding_of(judge(audited(*line_up(CLIENTS, "d", ranks))))
    assert (found.verdict, found.linkable) == ("bounded", "not linkable")


def test_records_that_are_lost_bound_nothing() -> None:
    run = audited(*line_up(CLIENTS, "d", LOW))
    lost = replace(
        run, records=tuple(r for r in run.records if (r.control, r.defense, r.client) != ("lineup", "d", "c0003"))
    )
    found = finding_of(judge(lost))
    assert found.verdict == "inconclusive"
    assert "it was not held for 1 of 8 pictures" in " ".join(found.reasons)
    none = replace(run, records=tuple(r for r in run.records if (r.control, r.defense) != ("lineup", "d")))
    assert finding_of(judge(none)).verdict == "inconclusive"
    twice = replace(
        lost, records=(*lost.records, next(r for r in lost.records if (r.control, r.defense) == ("lineup", "d")))
    )
    assert finding_of(judge(twice)).verdict == "inconclusive"


def test_without_a_plan_nothing_is_bounded() -> None:
    assert finding_of(judge(audited(*line_up(CLIENTS, "d", LOW), plan={}))).verdict == "inconclusive"


def test_a_seal_made_again_forbids_it() -> None:
    assert finding_of(judge(audited(*line_up(CLIENTS, "d", LOW), sealed_again=[{"by": "x"}]))).verdict == "inconclusive"


def test_a_server_that_may_plant_is_not_bounded_by_a_line_up() -> None:
    roles = {"easy": ROLES["easy"] | {"attacker": "malicious"}}
    found = finding_of(judge(audited(*line_up(CLIENTS, "d", LOW), roles=roles)))
    assert found.verdict == "no leak found"
    assert "a malicious server may send another" in " ".join(found.reasons)


def test_an_estimated_likelihood_bounds_nothing_but_names() -> None:
    low = finding_of(judge(audited(*line_up(CLIENTS, "d", LOW, flags=("line-up-estimated",)))))
    assert (low.verdict, low.linkable) == ("no leak found", "not evaluated")
    high = finding_of(judge(audited(*line_up(CLIENTS, "d", flags=("line-up-estimated",)))))
    assert (high.verdict, high.linkable) == ("no leak found", "linkable")


def test_an_upper_bound_by_what_was_granted_bounds() -> None:
    assert finding_of(judge(audited(*line_up(CLIENTS, "d", LOW, flags=("line-up-bound",))))).verdict == "bounded"


def test_chosen_pictures_bound_nothing() -> None:
    roles = {"easy": ROLES["easy"] | {"role": "canaries"}}
    assert finding_of(judge(audited(*line_up(CLIENTS, "d", LOW), roles=roles))).verdict != "bounded"
