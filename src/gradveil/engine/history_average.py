"""The mean of a client's updates over the rounds that the attacker saw: noise of mean zero falls by sqrt(rounds)."""

from __future__ import annotations

from dataclasses import replace

import torch

from gradveil.core.observation import Observation

REDRAWN = ("data", "batch")  # stages at which a defense may feed other pictures in every round


def averaged(seen: Observation) -> Observation:
    """One round in the place of all, with the mean of their updates.

    Not by an attacker who knows that the pictures may be others in every round: it keeps to the last one.
    """
    if not seen.history:
        return seen
    if seen.defense is not None and any(seen.defense.acts_at(stage) for stage in REDRAWN):
        return replace(seen, history=())
    rounds = (*seen.history, seen)
    mean = {name: torch.stack([one.update[name] for one in rounds]).mean(0) for name in seen.update}
    return replace(seen, update=mean, history=())
