"""Random policies: as many as asked for, the same for the same seed, all of them where they are few."""

from __future__ import annotations

from collections import Counter

from gradveil.core.seeds import Seed
from gradveil.search.policies import candidates, distinct, space
from gradveil.transforms.library import Entry, Library, library_of
from gradveil.transforms.policy import Policy

CODE = library_of("ats-code")
SMALL = Library("small", (Entry("invert", 0), Entry("rotate", 3), Entry("solarize", 0)))


def test_the_space_is_the_paper_s() -> None:
    assert space(CODE, 3) == 127_550


def test_lengths_and_numbers_are_in_range_and_repeats_happen() -> None:
    drawn = candidates(CODE, 2000, 3, Seed(0))
    lengths = Counter(len(policy.alternatives[0]) for policy in drawn)
    assert set(lengths) <= {1, 2, 3}
    assert 0.9 < lengths[3] / 2000 < 0.97  # (50/51)^3 = 0.942
    assert any(len(set(policy.alternatives[0])) < len(policy.alternatives[0]) for policy in drawn)
    used = {entry for policy in drawn for entry in policy.alternatives[0]}
    assert used == set(range(50))


def test_more_candidates_begin_with_the_same_ones() -> None:
    assert candidates(CODE, 200, 3, Seed(1))[:50] == candidates(CODE, 50, 3, Seed(1))
    assert candidates(CODE, 50, 3, Seed(1)) != candidates(CODE, 50, 3, Seed(2))


def test_where_there_are_no_more_all_are_tried_once() -> None:
    alone = candidates(CODE, 60, 1, Seed(0))
    assert [str(policy) for policy in alone] == [str(k) for k in range(50)]
    pairs = candidates(SMALL, 12, 2, Seed(0))
    assert len(set(pairs)) == len(pairs) == 3 + 9


def test_policies_that_do_the_same_come_together() -> None:
    policies = [Policy.parse(text) for text in ("47", "0", "29-39", "3-1", "28", "39", "43-18", "24-18")]
    groups = {str(key): [str(one) for one in some] for key, some in distinct(policies).items()}
    assert groups == {"0": ["47", "0", "29-39"], "3-1": ["3-1"], "none": ["28", "39"], "24-18": ["43-18", "24-18"]}
    assert sum(len(some) for some in groups.values()) == len(policies)


def test_the_code_s_library_has_29_functions() -> None:
    assert len(distinct(candidates(CODE, 50, 1, Seed(0)))) == 28  # of which two are the identity
