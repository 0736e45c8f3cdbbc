"""Other searches than top-1 on pixels: what they count, what chance explains, and when they are a leak."""

from __future__ import annotations

import pytest
from runs import SEEN, UNSEEN, defended, record, run_of, undefended

from gradveil.audit.verdict import judge
from gradveil.audit.verdict.judge import Verdict
from gradveil.audit.verdict.tally import Tally
from gradveil.audit.verdict.write import to_json
from gradveil.core.interval import at_least
from gradveil.experiment.record import Record


def found(client: int, *searches: str, **changes) -> Record:
    names = ("retrieval", "retrieval-top5", "retrieval-features", "retrieval-features-top5")
    scores = {"psnr": UNSEEN, **{name: float(name in searches) for name in names}}
    return record(client, **{"scores": scores, **changes})


def tally_of(verdict: Verdict, defense: str = "d") -> Tally:
    return next(f.tally for f in verdict.findings if f.tally.defense == defense)


def test_a_search_counts_each_picture_once_and_knows_its_chance():
    group = defended(10, make=lambda i, **c: found(i, *["retrieval-top5"] * (i < 3), **c))
    tally = tally_of(judge(run_of(undefended(10), group, gallery=999)))
    search = {s.metric: s for s in tally.searches}["retrieval-top5"]
    assert (search.hits, search.of, search.top, search.on) == (3, 10, 5, "pixels")
    assert search.chance == pytest.approx(1 - (1 - 5 / 1000) ** 2)  # two attackers looked
    assert tally.identified == 0


def test_found_among_five_beyond_chance_is_a_leak_though_nothing_is_nearest():
    group = defended(20, make=lambda i, **c: found(i, *["retrieval-top5"] * (i < 8), **c))
    verdict = judge(run_of(undefended(20), group))
    finding = next(f for f in verdict.findings if f.tally.defense == "d")
    assert finding.verdict == "leaks"
    assert "8 of 20 pictures the original ranked among the 5 nearest" in " ".join(finding.reasons)


def test_what_chance_explains_is_no_leak():
    group = defended(20, make=lambda i, **c: found(i, *["retrieval-top5"] * (i < 1), **c))
    finding = next(f for f in judge(run_of(undefended(20), group, gallery=49)).findings if f.tally.defense == "d")
    assert finding.verdict == "no leak found"


def test_the_other_searches_share_one_error_rate():
    group = defended(20, make=lambda i, **c: found(i, **c))
    levels = {s.metric: s.level for s in tally_of(judge(run_of(undefended(20), group))).searches}
    assert levels["retrieval"] == 0.95
    others = [level for name, level in levels.items() if name != "retrieval"]
    assert len(others) == 3
    assert sum(1 - level for level in others) == pytest.approx(0.05)
    assert at_least(1, 20, others[0]) < at_least(1, 20, 0.95)


def test_what_was_believed_before_does_not_count():
    prior = [found(i, "retrieval-top5", "retrieval-features", control="prior") for i in range(20)]
    group = defended(20, make=lambda i, **c: found(i, "retrieval-top5", "retrieval-features", **c))
    tally = tally_of(judge(run_of(undefended(20), group, prior)))
    assert [s.hits for s in tally.searches] == [0, 0, 0, 0]


def test_a_search_that_needs_no_update_is_a_doubt_and_no_leak():
    """Of five control clients four are found: the labels gave them away, and so perhaps the rest."""
    by = ("retrieval-features", "retrieval-features-top5")
    prior = [found(i, *by * (i < 4), control="prior") for i in range(5)]
    group = defended(20, make=lambda i, **c: found(i, *by, **c))
    verdict = judge(run_of(undefended(20), group, prior))
    finding = next(f for f in verdict.findings if f.tally.defense == "d")
    assert finding.verdict == "inconclusive"
    assert "control-identified" in verdict.flags
    assert not {s.metric: s for s in finding.tally.searches}["retrieval-features"].believed


def test_the_nearest_is_among_the_five_nearest_whatever_was_believed():
    prior = [found(i, "retrieval-top5", control="prior") for i in range(20)]
    group = defended(20, make=lambda i, **c: found(i, "retrieval", "retrieval-top5", **c))
    tally = tally_of(judge(run_of(undefended(20), group, prior)))
    assert [s.hits for s in tally.searches][:2] == [20, 20]


def test_runs_without_them_are_judged_as_ever():
    verdict = judge(run_of(undefended(60), defended(60)))
    assert [f.verdict for f in verdict.findings] == ["leaks", "no leak found"]
    assert [s.metric for s in tally_of(verdict).searches] == ["retrieval"]
    assert tally_of(verdict).bytes is None


def test_defenses_are_ranked_by_re_identification_before_decibels():
    close = [
        record(i, defense="a", scores={"psnr": UNSEEN + 2, "retrieval": 0.0, "retrieval-top5": 0.0}) for i in range(9)
    ]
    known = [found(i, *["retrieval-top5"] * (i < 1), defense="b") for i in range(9)]
    ranked = [f.tally.defense for f in judge(run_of(undefended(9), close, known)).findings]
    assert ranked == ["none", "b", "a"]


def test_searches_and_bytes_are_told_to_machines():
    run = run_of(undefended(4), update_bytes={"easy": {"none": 57_294}})
    content = to_json(run, judge(run))
    assert content["findings"][0]["update_bytes"] == content["cells"][0]["update_bytes"] == 57_294
    search = content["findings"][0]["searches"]["retrieval"]
    assert (search["hits"], search["of"], search["chance"]) == (4, 4, pytest.approx(0.001))
    assert search["low"] < 1 == search["high"]


@pytest.mark.parametrize(("known", "raised"), [(True, False), (False, True)])
def test_unknown_weights_of_a_metric_are_a_doubt(known, raised):
    scores = {"psnr": SEEN, "retrieval": 1.0, "lpips": 0.1}
    weights = {"lpips": {"sha256": "0" * 64, "known": known}}
    flags = judge(run_of([record(0, scores=scores)], metric_weights=weights)).flags
    assert ("unknown-weights" in flags) == raised
