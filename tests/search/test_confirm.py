"""Policies attacked for real: who is chosen, what is counted, and when a proxy counts as validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from searches import own_cache, small

from gradveil.experiment import journal
from gradveil.search.confirm import choose, read_confirmations, validate_scores
from gradveil.search.outcome import NOT_VALIDATED, Confirmed, Scored, SearchOutcome
from gradveil.search.page import COLUMNS, rows, sentences
from gradveil.search.ranking import Ranked, hybrid
from gradveil.search.search import search
from gradveil.transforms.policy import Policy


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SearchOutcome, Path]]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("confirm")
    asked = small(confirm=4, confirm_images=2, confirm_steps=2, top=2, threshold="100%")
    with own_cache(folder / "cache"):
        yield search(asked, folder / "run"), folder / "run"


def ranking(count: int) -> list[Ranked]:
    policies = [Policy.parse(str(k)) for k in range(count)]
    parts = {"low": 0.0, "high": 1.0, "area": 0.5, "in_top": 0.5}
    return [Ranked(policy=policy, privacy=k / 10, **parts) for k, policy in enumerate(policies)]


def test_the_best_and_a_spread_to_the_very_last_are_chosen() -> None:
    best, others = choose(ranking(40), 10)
    assert [str(one.policy) for one in best] == ["0", "1", "2", "3", "4"]
    assert [str(one.policy) for one in others] == ["11", "18", "25", "32", "39"]
    assert [len(part) for part in choose(ranking(3), 10)] == [3, 0]


@pytest.mark.parametrize("count", range(1, 12))
def test_nobody_is_chosen_twice(count: int) -> None:
    best, others = choose(ranking(12), count)
    assert len({one.policy for one in (*best, *others)}) == count


def test_the_hybrid_is_greedy_and_shares_no_transformation() -> None:
    ranked = [Policy.parse(text) for text in ("39", "3-1-7", "1-5", "43-18-18", "47")]
    assert str(hybrid(ranked, 2)) == "3-1-7+43-18-18"
    assert str(hybrid(ranked, 3)) == "3-1-7+43-18-18+47"
    assert str(hybrid(ranked, 1)) == "3-1-7"
    assert hybrid([Policy.parse("39")], 2) is None
    assert str(hybrid([Policy.parse("24"), Policy.parse("48")], 2)) == "24"  # the same shift by two names


def test_each_policy_meets_both_attackers_and_the_undefended_pictures_are_a_control(attacked) -> None:
    outcome, folder = attacked
    seen = [one for one in (*outcome.policies, *outcome.others) if one.confirmed]
    assert len(seen) == 4
    for one in seen:
        assert [each.attacker for each in one.confirmed] == ["unaware", "adaptive"]
        assert all(each.pictures == 2 and each.failed == 0 for each in one.confirmed)
    assert [each.attacker for each in outcome.undefended] == ["unaware"]
    assert [each.attacker for each in outcome.hybrid_confirmed] == ["unaware", "adaptive"]
    assert len(list((folder / "images").glob("*.safetensors"))) == 2 * (1 + 2 * 5)


def test_what_was_attacked_was_never_scored(attacked) -> None:
    _, folder = attacked
    records = journal.read(folder / "journal.jsonl")
    scored = {int(place) for r in records if r.attack == "privacy-score" for place in r.scores}
    assert scored == set(range(8))
    assert {r.client for r in records if r.attack == "invertgrad"} == {"c0000", "c0001"}


def test_records_in_any_order_are_confirmed_alike(attacked) -> None:
    _, folder = attacked
    records = journal.read(folder / "journal.jsonl")
    assert read_confirmations(records) == read_confirmations(records[::-1])


def test_everything_is_on_the_sheet(attacked) -> None:
    outcome, _ = attacked
    table = rows(outcome)
    assert all(len(row) == len(COLUMNS) for row in table)
    assert [row[0] for row in table][-2:] == [f"hybrid {outcome.hybrid}", "undefended"]
    said = list(sentences(outcome))
    assert any("undefended pictures leaked" in line for line in said)
    assert sum("Pearson" in line for line in said) == 6
    assert said[-1] == f"hybrid: {outcome.hybrid}"


def scored(privacy: float, decibels: float, identified: int = 0) -> Scored:
    parts = {"pictures": 8, "failed": 0, "low": None, "high": None, "identified": identified, "leaked": 0}
    seen = Confirmed(attacker="unaware", psnr=decibels, psnr_fed=20 - decibels, **parts)
    empty = {"low": 0.0, "high": 1.0, "area": 0.5, "in_top": 0.0, "accuracy": -1.0}
    return Scored(policy="0", functions=("invert7",), privacy=privacy, confirmed=(seen,), **empty)


def test_a_score_that_follows_the_attack_is_validated_and_one_that_does_not_is_not() -> None:
    rising = [scored(k / 10, 8 + k + (k % 2) / 4) for k in range(8)]
    by_kind = {v.against: v for v in validate_scores(rising) if v.attacker == "unaware"}
    assert by_kind["private"].holds
    assert by_kind["fed"].conclusion == NOT_VALIDATED  # falls as the score rises
    flat = [replace(one, privacy=p) for one, p in zip(rising, (3, 1, 4, 1, 5, 9, 2, 6), strict=True)]
    assert next(v for v in validate_scores(flat) if v.against == "private").conclusion == NOT_VALIDATED
    assert validate_scores([]) == ()


def test_an_attack_that_fails_undefended_confirms_nothing(attacked) -> None:
    outcome, _ = attacked
    weak = tuple(replace(one, leaked=0) for one in outcome.undefended)
    strong = tuple(replace(one, leaked=2) for one in outcome.undefended)
    assert "confirms nothing" in replace(outcome, undefended=weak).control
    assert replace(outcome, undefended=strong).control == "control: 2 of 2 undefended pictures leaked"


def test_a_score_may_tell_what_is_identified_and_not_the_decibels() -> None:
    policies = [scored(k / 10, (13, 11, 14, 11, 15, 12, 12, 14)[k], identified=k) for k in range(8)]
    by_kind = {v.against: v for v in validate_scores(policies) if v.attacker == "unaware"}
    assert by_kind["identified"].holds
    assert by_kind["identified"].measure == "pictures identified"
    assert by_kind["private"].conclusion == NOT_VALIDATED
