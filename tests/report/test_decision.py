"""The sentence at the top of a page, and what it says to do."""

import re
from dataclasses import replace

import pytest
from synthetic import random_run

from gradveil.audit.verdict import judge
from gradveil.report.decision import advise, state_result

QUIET = ("no leak found", "bounded")
WORDS = {
    "leaks": "can ",
    "inconclusive": "is not known",
    "not evaluated": "nothing is known",
    "no leak found": "stronger attacks may",
    "bounded": "at most",
}


@pytest.mark.parametrize("seed", range(60))
def test_the_sentence_says_the_word_of_the_verdict_and_no_more(seed: int) -> None:
    run = random_run(seed)
    verdict = judge(run)
    said = state_result(run, verdict)
    assert WORDS[verdict.word] in said
    assert said[0].isupper()
    assert said.endswith(".")
    if verdict.word == "leaks":
        worst = max((f.tally for f in verdict.judged if f.verdict == "leaks"), key=lambda t: t.exposed / t.scored)
        assert f"{worst.exposed} of {worst.scored} pictures" in said


@pytest.mark.parametrize("seed", range(60))
def test_every_verdict_has_something_to_do_and_only_a_quiet_one_is_chosen(seed: int) -> None:
    run = random_run(seed)
    verdict = judge(run)
    told = " ".join(advise(verdict))
    assert told
    quiet = {f.tally.defense for f in verdict.judged if f.verdict in QUIET}
    quiet -= {f.tally.defense for f in verdict.judged if f.verdict not in QUIET}
    assert ("choose" in told) == bool(quiet)
    chosen = re.search(r"choose (\w+)", told)
    assert chosen is None or chosen[1] in quiet or chosen[1] == "these"
    if verdict.word in ("inconclusive", "not evaluated"):
        assert "not read this as protection" in told


def test_a_label_with_backticks_is_no_command() -> None:
    told = ""
    for seed in range(30):
        run = random_run(seed)
        named = replace(run, records=tuple(replace(r, defense=r.defense.replace("odd", "o`d`d")) for r in run.records))
        told += " ".join(advise(judge(named)))
    assert "o'd'd" in told
    assert "`d`" not in told
