"""A picture leaks in one and the same guise: found in it, and nearer in it than anything that needs no update."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gradveil.audit.verdict.leak import (
    FED,
    GUISES,
    MARGIN,
    PRIVATE,
    SYMMETRIC,
    Baselines,
    count_guises,
    describe_guises,
    find_linked,
    guises_of,
)
from gradveil.experiment.journal import decode, encode
from gradveil.experiment.record import Record

LINKED = {"linked": 1.0, "chance": 0.004}


def record(client: int = 0, control: Any = "", scores: dict[str, float] | None = None, **more: Any) -> Record:
    """Seen by nobody, unless more is said."""
    nothing = {"psnr": 5.0, "retrieval": 0.0, "psnr_fed": 5.0, "retrieval_fed": 0.0, "psnr-symmetric": 12.0,
               "retrieval-symmetric": 0.0}  # fmt: skip
    given = {"defense": "d", "blank": 8.0, "floors": {"psnr_fed": 8.0, "psnr-symmetric": 14.0}} | more
    return Record(
        key=f"s/{given['defense']}/a/{control or 'unaware'}/c{client}/0", status="ok", scenario="s", attack="a",
        attacker="unaware", client=f"c{client}", example=0, seed=0, seconds=0.0, backend="loop",
        scores={**nothing, **(scores or {})}, control=control, **given,
    )  # fmt: skip


def hit(guise: Any, decibels: float, **more: Any) -> Record:
    return record(scores={guise.found: 1.0, guise.near: decibels}, **more)


CLOSE = {PRIVATE: 11.5, FED: 11.5, SYMMETRIC: 17.5}  # just above the margin


@pytest.mark.parametrize("guise", GUISES, ids=lambda one: one.name)
def test_found_and_near_in_one_guise_is_a_leak(guise) -> None:
    one = hit(guise, CLOSE[guise], fed=LINKED)
    baselines = Baselines.of([one])
    assert baselines.leaked_as(one) == (guise,)
    assert baselines.is_identified(one)
    far = hit(guise, CLOSE[guise] - 1, fed=LINKED)
    assert not baselines.is_leaked(far)
    assert baselines.identified_as(far) == (() if guise is SYMMETRIC else (guise,))  # so many symmetries are tried


@pytest.mark.parametrize("found", GUISES, ids=lambda one: one.name)
@pytest.mark.parametrize("near", GUISES, ids=lambda one: one.name)
def test_found_in_one_and_near_in_another_is_none(found, near) -> None:
    one = record(scores={found.found: 1.0, near.near: 40.0}, fed=LINKED)
    assert Baselines.of([one]).is_leaked(one) == (found is near)


def test_what_is_not_linked_is_not_exposed_as_fed() -> None:
    for fed in ({}, {"linked": 0.0, "chance": 0.004}):
        one = hit(FED, 60.0, fed=fed)
        others = [record(k, fed=LINKED) for k in range(1, 9)]
        assert not Baselines.of([one, *others]).is_identified(one)


def test_one_lucky_link_of_a_defense_that_feeds_noise_is_none() -> None:
    one = hit(FED, 60.0, fed=LINKED)
    others = [record(k, fed={"linked": 0.0, "chance": 0.004}) for k in range(1, 32)]
    assert not find_linked([one, *others])
    assert not Baselines.of([one, *others]).is_identified(one)
    assert find_linked([one, *(replace(other, fed=LINKED) for other in others[:3]), *others[3:]]) == {("s", "d")}


def test_links_are_counted_by_picture_and_not_by_trial() -> None:
    """Every attack meets the same fed picture: one link, not ten."""
    lucky = [replace(hit(FED, 60.0, fed=LINKED), attack=f"a{k}") for k in range(10)]
    others = [record(k, fed={"linked": 0.0, "chance": 0.004}) for k in range(1, 20)]
    assert not find_linked([*lucky, *others])


def test_links_of_one_defense_say_nothing_of_another() -> None:
    one, other = hit(FED, 60.0, fed=LINKED), hit(FED, 60.0, fed=LINKED, defense="noise")
    noise = [record(k, fed={"linked": 0.0, "chance": 0.004}, defense="noise") for k in range(1, 20)]
    baselines = Baselines.of([one, other, *noise])
    assert baselines.is_leaked(one)
    assert not baselines.is_identified(other)


def test_a_control_that_finds_the_picture_in_a_guise_takes_it_away_there_only() -> None:
    control = hit(SYMMETRIC, 15.0, control="prior")
    for guise, left in ((SYMMETRIC, ()), (PRIVATE, (PRIVATE,))):
        one = hit(guise, CLOSE[guise] - 1)
        assert Baselines.of([one, control]).identified_as(one) == left


@pytest.mark.parametrize("guise", [PRIVATE, SYMMETRIC], ids=lambda one: one.name)
@pytest.mark.parametrize("control", ["prior", "random", "another"])
def test_what_is_clearly_nearer_than_the_control_leaked_all_the_same(guise, control: Any) -> None:
    lucky = hit(guise, CLOSE[guise] - 2, control=control)
    for over, leaked in ((MARGIN + 0.1, True), (MARGIN - 0.1, False)):
        one = hit(guise, CLOSE[guise] - 2 + over)
        baselines = Baselines.of([one, lucky])
        assert baselines.is_leaked(one) == leaked
        assert baselines.is_identified(one) == leaked


def test_the_next_clients_picture_is_the_control_as_fed() -> None:
    one = hit(FED, 11.5, fed=LINKED, floors={"psnr_fed": 8.0, "retrieval_fed": 1.0})
    assert Baselines.of([one]).is_leaked(one)  # found by both, and clearly nearer
    one = hit(FED, 11.5, fed=LINKED, floors={"psnr_fed": 9.0, "retrieval_fed": 1.0})
    assert not Baselines.of([one]).is_identified(one)


@pytest.mark.parametrize("guise", [PRIVATE, SYMMETRIC], ids=lambda one: one.name)
def test_a_picture_that_leaked_to_a_control_was_known_before_and_does_not_leak_as_fed(guise) -> None:
    one, control = hit(FED, 60.0, fed=LINKED), hit(guise, 40.0, control="prior")
    assert not Baselines.of([one, control]).is_identified(one)
    assert Baselines.of([one, replace(control, client="c9")]).is_leaked(one)


def test_without_a_floor_there_is_no_leak_under_symmetries_and_as_fed() -> None:
    for guise in (FED, SYMMETRIC):
        one = hit(guise, 60.0, fed=LINKED, floors={})
        assert not Baselines.of([one]).is_leaked(one)


def test_without_a_gallery_the_error_alone_decides() -> None:
    one = replace(record(), scores={"psnr": 11.5, "psnr-symmetric": 60.0, "psnr_fed": 60.0})
    assert Baselines.of([one]).leaked_as(one) == (PRIVATE,)
    far = replace(one, scores={**one.scores, "psnr": 10.5})
    assert not Baselines.of([far]).is_leaked(far)


def test_one_search_says_what_it_found_itself() -> None:
    one = hit(SYMMETRIC, 20.0)
    baselines = Baselines.of([one])
    assert baselines.is_found(one, "retrieval-symmetric")
    assert not baselines.is_found(one, "retrieval")
    assert not baselines.is_found(one, "retrieval-top5")


def test_every_guise_is_a_try() -> None:
    assert guises_of([record(fed=LINKED)]) == (PRIVATE, FED, SYMMETRIC)
    assert guises_of([record()]) == (PRIVATE, SYMMETRIC)
    assert guises_of([replace(record(), scores={"psnr": 1.0, "retrieval": 0.0})]) == (PRIVATE,)


def test_each_picture_is_counted_in_one_guise_and_said_in_words() -> None:
    both = replace(hit(FED, 60.0, fed=LINKED), scores={**hit(FED, 60.0).scores, "retrieval": 1.0, "psnr": 30.0})
    fed = [hit(FED, 60.0, fed=LINKED, client=k) for k in (1, 2)]
    turned, hidden = hit(SYMMETRIC, 60.0, client=3), record(4)
    pictures = [[both], *([one] for one in fed), [turned, hidden], [hidden]]
    counts = count_guises(pictures, Baselines.of([both, *fed, turned, hidden]))
    assert counts == {PRIVATE: 1, FED: 2, SYMMETRIC: 1}
    assert describe_guises(counts) == (
        "1 as they are, 2 as they were fed to the model, 1 mirrored, turned, shifted, negated or in another contrast"
    )
    assert describe_guises({PRIVATE: 3}) == ""


def drawn(rng: random.Random) -> list[Record]:
    """Any scores at all."""
    found = []
    for client in range(4):
        for control in ("", "", "prior", "another"):
            scores = {guise.found: float(rng.random() < 0.5) for guise in GUISES if rng.random() < 0.9}
            scores |= {guise.near: rng.uniform(0, 40) for guise in GUISES if rng.random() < 0.9}
            fed = {"linked": float(rng.random() < 0.7), "chance": 0.01} if rng.random() < 0.7 else {}
            floors = {guise.near: rng.uniform(0, 40) for guise in GUISES if rng.random() < 0.8}
            floors["retrieval_fed"] = float(rng.random() < 0.3)
            one = record(client, control, fed=fed, floors=floors, blank=rng.choice([None, 10.0]))
            found.append(replace(one, scores=scores))
    return found


def test_leaked_is_identified_and_parts_add_up_over_random_records() -> None:
    rng = random.Random(0)
    for _ in range(500):
        records = drawn(rng)
        baselines = Baselines.of(records)
        for one in records:
            if "retrieval" in one.scores:
                assert set(baselines.leaked_as(one)) <= set(baselines.identified_as(one))
        for leaked in (True, False):
            is_hit = baselines.is_leaked if leaked else baselines.is_identified
            counted = count_guises([[one] for one in records], baselines, leaked)
            assert sum(counted.values()) == sum(map(is_hit, records))


def test_a_journal_keeps_floors_and_links_and_refuses_what_is_no_number() -> None:
    one = record(fed=LINKED)
    assert decode(encode(one)[:-1]) == one
    for field in ("floors", "fed"):
        with pytest.raises(ValueError, match="numbers"):
            decode(encode(replace(one, **{field: {"psnr_fed": "a lot"}}))[:-1])
