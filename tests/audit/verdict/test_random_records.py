"""Whatever the records of a run are, its verdict does not contradict itself and its numbers add up.

Runs are drawn from a seed: one to three scenarios, defenses and attacks, both kinds of attackers, controls of all
kinds, failed trials, metrics that were not measured, line-ups and certificates of any outcome, lines lost or written
twice, plans with and without them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from runs import CANDIDATES, ROLES, lined_up, record, run_of

from gradveil.audit.results import Run
from gradveil.audit.verdict import Finding, Verdict, judge, to_json
from gradveil.audit.verdict.judge import WORST_FIRST
from gradveil.audit.verdict.tally import Tally
from gradveil.core import interval
from gradveil.experiment.record import NO_TRUTH, Record

MOST_CLIENTS = 8
COUNTS = re.compile(r"(\d+) of (\d+) pictures (?:leaked|were identified)")
AT_MOST = re.compile(r"at most [\d.]+ ?%")


def ends(samples: np.ndarray, level: float) -> np.ndarray:
    """In place of a bootstrap, which takes all the time and about which nothing is claimed here."""
    return np.stack([samples.min(-1), samples.max(-1)], -1)


ODD: tuple[dict[str, float], ...] = (
    {"truth": 0.3, "repeated": 0.7},
    {"truth": 0.3, "repeated": 0.3},
    {"truth": 0.1, "zeroed": 0.9},
    {"truth": 0.2, "reconstruction": 0.8},
    {"truth": -0.7, "reconstruction": -0.9},
    {"truth": 0.3, "plain": 0.9},
    {"truth": 0.9, "replay": 0.5},
    {"truth": 0.0, "reconstruction": 0.0, "repeated": 0.0},
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "_bca", ends)


@dataclass(frozen=True)
class Habits:
    """What may go wrong in a run: shares of trials or pictures, most often none."""

    leaking: float
    working: float  # of the undefended pictures that the attacks recover
    failing: float
    unmeasured: float
    guessed: float  # identified without being near
    known: float  # recovered without the update
    lost: float
    twice: float

    @classmethod
    def of(cls, rng: random.Random) -> Habits:
        most = rng.choice([0, 0, 1, 1, 8])  # habits that are bad
        bad = set(rng.sample(range(8), most))

        def pick(place: int, good: float, *others: float) -> float:
            return rng.choice(others) if place in bad else good

        return cls(
            leaking=pick(0, 0.0, 0.1, 0.5, 1.0),
            working=pick(1, 1.0, 0.0, 0.8, 0.95),
            failing=pick(2, 0.0, 0.02, 0.3, 1.0),
            unmeasured=pick(3, 0.0, 0.05, 0.3),
            guessed=pick(4, 0.0, 0.02, 0.3),
            known=pick(5, 0.0, 0.05, 0.5),
            lost=pick(6, 0.0, 0.02, 0.2),
            twice=pick(7, 0.0, 0.02, 0.2),
        )


def drawn(seed: int) -> Run:
    """A run of its own for every seed."""
    rng = random.Random(seed)
    habits = Habits.of(rng)
    whole = list(records(rng, habits))
    line_up = list(line_ups(random.Random(seed + 1), whole))  # of its own numbers: runs without are as they were
    whole += line_up
    whole = explained_oddly(random.Random(seed + 3), whole)
    written = [one for one in whole if rng.random() >= habits.lost] or whole[:1]
    written += [one for one in written if rng.random() < habits.twice]
    if rng.random() < 0.05:
        written = [replace(one, flags=(*one.flags, NO_TRUTH)) for one in written]
    rng.shuffle(written)
    about: dict[str, Any] = {"roles": roles(rng), "gallery": rng.choice([0, 3, 99, 999, 999, 999])}
    if rng.random() < 0.2:
        about["order"] = ["a", "b"]
    if rng.random() < 0.05:
        about["plan"] = {}
    about |= certificates(random.Random(seed + 2), whole)
    run = run_of(whole, **about)  # whose plan is of what was to be
    doubled = [one for one in run.records if one.control == "doubled"]
    return replace(run, records=(*written, *(doubled if rng.random() < 0.8 else [])))


def explained_oddly(rng: random.Random, whole: list[Record]) -> list[Record]:
    """In one run of six what explains the updates is anything at all, of one attack or of all."""
    if rng.random() >= 1 / 6:
        return whole
    odd, attacks = rng.choice(ODD), rng.choice([("a",), ("a", "b")])

    def change(one: Record) -> Record:
        numbers = {name: value + rng.uniform(-0.05, 0.05) for name, value in odd.items()}
        return replace(one, explained={**one.explained, **numbers})

    return [change(one) if not one.control and one.attack in attacks else one for one in whole]


def roles(rng: random.Random) -> dict[str, Any]:
    other = {**ROLES["easy"], "role": rng.choice(["variation", "control"]), "regime": "deployment"}
    first = {**ROLES["easy"], "regime": rng.choice(["diagnostic", "diagnostic", "deployment"])}
    return {"easy": first, "other": {**other, "batch_size": rng.randint(1, 3)}}


def records(rng: random.Random, habits: Habits) -> Iterator[Record]:
    """Every cell of a small audit."""
    clients, examples = rng.randint(1, MOST_CLIENTS), rng.choice([1, 1, 2, 3])
    scenarios, attacks = ("easy", "other")[: rng.randint(1, 2)], ("a", "b")[: rng.choice([1, 1, 2])]
    defenses = rng.choice([("none", "d"), ("none", "d"), ("none",), ("d",)])
    for scenario, defense, attack in product(scenarios, defenses, attacks):
        for kind in kinds(rng, defense):
            for client, example in product(range(clients), range(examples)):
                where = {"scenario": scenario, "defense": defense, "attack": attack, "example": example}
                yield trial(rng, client, kind, habits, where)


def line_ups(rng: random.Random, whole: list[Record]) -> Iterator[Record]:
    """Of every defense, or of some, or of none; most often sound."""
    if rng.random() < 0.4:
        return
    standins, wrong = rng.choice([0, 9, 20]), rng.random() < 0.3
    places = sorted({(r.scenario, r.defense, r.client, r.example) for r in whole if not r.control})
    shares = {place[:2]: rng.choice([0.0, 0.0, 0.0, 0.02, 0.5, 1.0]) for place in places}
    of_none = rng.choice([0.5, 1.0, 1.0, 1.0, 1.0])
    for scenario, defense, client, example in places:
        share = of_none if defense == "none" else shares[scenario, defense]
        where = {"scenario": scenario, "defense": defense, "example": example}
        yield line_up(rng, share, standins, wrong, int(client[1:]), where)


def line_up(rng: random.Random, share: float, standins: int, wrong: bool, client: int, where: dict[str, Any]) -> Record:
    if wrong and rng.random() < 0.05:
        lost = {"status": "failed", "scores": {}, "reason": "no memory", "attack": "line-up", "control": "lineup"}
        return record(client, **lost, **where)
    ranks = [1 if rng.random() < share else rng.randint(1, CANDIDATES) for _ in range(1 + standins)]
    flags = [name for name in ("line-up-off", "line-up-bound", "line-up-estimated") if wrong and rng.random() < 0.01]
    made = lined_up(client, ranks, another=rng.randint(1, CANDIDATES), flags=tuple(flags), **where)
    odd = {"rank": [], "candidates": []} if wrong and rng.random() < 0.02 else {}
    return replace(made, ranks={**made.ranks, **odd})


def certificates(rng: random.Random, whole: list[Record]) -> dict[str, Any]:
    if rng.random() < 0.8:
        return {}
    one = {"at_most": rng.choice([0.002, 0.018, 0.138, 0.9]), "kappa": 0.001, "kind": rng.choice(["gaussian", "none"])}
    return {"certificates": {scenario: {"d": one} for scenario in {r.scenario for r in whole}}}


def kinds(rng: random.Random, defense: str) -> list[str]:
    if defense == "none":
        return ["unaware", *(kind for kind in ("prior", "random", "another") if rng.random() < 0.5)]
    return rng.choice([["unaware", "adaptive"]] * 4 + [["unaware"], ["adaptive"]])


def trial(rng: random.Random, client: int, kind: str, habits: Habits, where: dict[str, Any]) -> Record:
    who = {"attacker": kind} if kind in ("unaware", "adaptive") else {"control": kind}
    blank = rng.choice([None, 12.0, 12.0, 12.0])
    if rng.random() < habits.failing:
        return record(client, status="failed", scores={}, loss=None, reason="NaN", blank=blank, **who, **where)
    share = habits.known if "control" in who else habits.working if where["defense"] == "none" else habits.leaking
    hit = rng.random() < share
    found = float(hit or rng.random() < habits.guessed)
    scores = {
        "psnr": rng.choice([15.0, 25.0, 60.0]) if hit else rng.uniform(5.0, 14.9),
        "retrieval": found,
        "retrieval-top5": max(found, float(rng.random() < habits.guessed)),
        "ssim": rng.uniform(-1, 1),
    }
    scores = {name: value for name, value in scores.items() if rng.random() >= habits.unmeasured or name == "ssim"}
    return record(client, scores=scores, blank=blank, loss=rng.choice([None, 0.1, 0.1, 0.1]), **who, **where)


def check(verdict: Verdict, run: Run) -> None:
    json.dumps(to_json(run, verdict, 0.01), allow_nan=False)
    assert verdict.word in WORST_FIRST
    if verdict.judged:
        assert verdict.word == min((f.verdict for f in verdict.judged), key=WORST_FIRST.index)
    assert verdict.missing >= 0
    for finding in verdict.findings:
        check_sums(finding.tally)
        check_word(finding, verdict)
        check_texts(finding)
        check_bounds(finding, verdict, run)


def check_sums(tally: Tally) -> None:
    assert 0 <= tally.leaked <= tally.scored <= tally.pictures
    assert tally.leaked <= tally.hits <= tally.exposed <= tally.scored
    if tally.identified is not None:
        assert tally.leaked <= tally.identified
    assert tally.failed <= tally.attempted
    assert tally.updates <= tally.scored
    assert all(search.hits <= search.of for search in tally.searches)
    if tally.shares:
        assert tally.interval.low <= sum(tally.shares) / len(tally.shares) <= tally.interval.high
        assert sum(tally.shares) / len(tally.shares) <= tally.bound
        assert any(tally.shares) == bool(tally.hits)


def check_word(finding: Finding, verdict: Verdict) -> None:
    tally = finding.tally
    leaks = bool(tally.leaked) or tally.beats_chance or bool(tally.found_otherwise)
    assert (finding.verdict == "leaks") == leaks
    assert (finding.at_most is not None) == (finding.verdict in ("no leak found", "bounded"))
    if finding.verdict == "no leak found":
        assert not tally.leaked
        assert not verdict.missing
        assert tally.scored == tally.pictures > 0
        assert any(one.counts for one in finding.evidence)
        assert all(one.oracle is None or one.oracle.passed is not False for one in finding.evidence)
        assert tally.undefended or tally.has_adaptive
    elif finding.verdict != "bounded":
        assert not finding.supports(0.999)


def check_bounds(finding: Finding, verdict: Verdict, run: Run) -> None:
    """Bounded: by something that is known, that passed its controls, and that no attack contradicts."""
    one, bounds = finding.lineup, finding.bounds
    if one is not None:
        assert 0 <= one.hits <= one.of
        between = one.own.interval()
        assert between.low <= one.own.share() <= between.high
        assert one.own.hits(1) <= one.own.hits(2) <= one.own.hits(CANDIDATES) == one.of
        assert one.ceiling(1) <= one.ceiling(one.top) <= one.ceiling(one.top * one.searched)
    if finding.verdict == "bounded":
        assert bounds.bounded_by is not None
        assert finding.at_most is not None
        assert finding.at_most <= bounds.limit
        assert finding.linkable == "not linkable"
        assert not bounds.doubts.foreign
        assert not verdict.missing
        assert run.plan
        low = one is not None and not bounds.doubts and one.own.at_most <= bounds.limit and one.kind != "estimated"
        assert low or (finding.certificate is not None and finding.certificate.at_most <= bounds.limit)
    if finding.verdict == "leaks" and bounds.bounded_by:
        assert "leaks-and-bounded" in verdict.flags
    if finding.linkable == "linkable":
        assert one is not None
        assert one.hits
        assert finding.verdict != "bounded"
    assert finding.link_sentence.startswith("Linkable: ")


def check_texts(finding: Finding) -> None:
    """What the reasons say is what was counted, and only a verdict without a leak states a bound."""
    tally, text = finding.tally, " ".join(finding.reasons)
    assert finding.reasons
    if finding.verdict in ("leaks", "inconclusive"):
        for count, of in COUNTS.findall(text):
            assert int(of) == tally.scored
            assert 0 < int(count) <= tally.exposed
    if finding.verdict == "leaks" and tally.identified is None:
        assert "identified" not in text
    assert bool(AT_MOST.search(text)) == (finding.verdict in ("no leak found", "bounded"))
    assert ("None of" in text) == (finding.verdict == "no leak found")


def check_all(seeds: range) -> dict[str, int]:
    """Every seed; how often each word came out."""
    words = dict.fromkeys(WORST_FIRST, 0)
    for seed in seeds:
        run = drawn(seed)
        try:
            verdict = judge(run)
            check(verdict, run)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        for finding in verdict.findings:
            words[finding.verdict] += 1
    return words


def test_no_set_of_records_contradicts_its_verdict() -> None:
    words = check_all(range(300))
    assert min(words.values()) >= 5, words  # else nothing was tested


@pytest.mark.more
def test_ten_thousand_sets_of_records_do_not_either() -> None:
    check_all(range(10_000))


def test_a_judge_who_miscounts_is_caught() -> None:
    run = drawn(0)
    verdict = judge(run)
    wrong = replace(verdict.findings[0].tally, leaked=verdict.findings[0].tally.scored + 1)
    with pytest.raises(AssertionError):
        check(replace(verdict, findings=(replace(verdict.findings[0], tally=wrong),)), run)
