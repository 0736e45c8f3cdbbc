"""A random policy: the baseline of ATS (Gao et al., 2021, "random augmentation"). What a search finds must beat it."""

from __future__ import annotations

import torch

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.defenses.ats import PAPER as ATS
from gradveil.defenses.ats import Ats
from gradveil.transforms.library import library_of
from gradveil.transforms.policy import Policy

PAPER = ATS
LONGEST = 12


def random_policy(
    *, length: int = 3, seed: int = 0, library: str | tuple[str, ...] = "ats-code", augment: bool = False
) -> Ats:
    """ATS with a policy of `length` entries, drawn once from the library by `seed`; entries may repeat."""
    if not 0 <= length <= LONGEST:
        raise ConfigError(f"random-policy: length = {length} is out of range, take 0 to {LONGEST}")
    drawn_from = library_of(library)
    rng = Seed(seed).at("random policy").rng()
    places = torch.randint(len(drawn_from.entries), (length,), generator=rng).tolist()
    return Ats(policy=str(Policy(drawn_from, (tuple(places),))), library=drawn_from.spec, augment=augment)
