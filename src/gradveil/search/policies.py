"""Which policies are tried (ATS, section 4.4): random ones of at most k transformations, or all if they are few.

Every slot takes one of the entries or stays empty, all alike, as in the authors' code (whose draw can also name an
entry that does not exist); a policy that comes out empty is drawn again. Entries may repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import torch

from gradveil.core.seeds import Seed
from gradveil.transforms.library import Library
from gradveil.transforms.policy import Policy


def candidates(library: Library, count: int, length: int, seed: Seed) -> tuple[Policy, ...]:
    """`count` policies of 1 to `length` transformations; the first of them are the same whatever the count."""
    if count >= space(library, length):
        return tuple(everything(library, length))
    return tuple(Policy(library, (_draw_entries(library, length, seed.at("candidate", i)),)) for i in range(count))


def space(library: Library, length: int) -> int:
    """How many policies there are: 127,550 of at most three out of 50."""
    return sum(len(library.entries) ** k for k in range(1, length + 1))


def everything(library: Library, length: int) -> Iterable[Policy]:
    """All of them, the short ones first."""
    for k in range(1, length + 1):
        for entries in product(range(len(library.entries)), repeat=k):
            yield Policy(library, (entries,))


def _draw_entries(library: Library, length: int, seed: Seed) -> tuple[int, ...]:
    rng = seed.rng()
    while True:
        slots = torch.randint(-1, len(library.entries), (length,), generator=rng).tolist()
        if entries := tuple(entry for entry in slots if entry >= 0):
            return entries


def distinct(policies: Iterable[Policy]) -> dict[Policy, list[Policy]]:
    """Those that do the same together, by their common form: it is scored once for all of them."""
    alike: dict[Policy, list[Policy]] = {}
    for policy in policies:
        alike.setdefault(policy.canonical(), []).append(policy)
    return alike
