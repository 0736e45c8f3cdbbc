"""Policies in the order of their privacy score, with the doubt that a finite number of pictures leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gradveil.search.privacy import PrivacyScore, combined
from gradveil.transforms.policy import Policy

RESAMPLES = 500


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One policy among all that were scored on the same pictures."""

    policy: Policy
    privacy: float
    low: float
    high: float
    area: float
    in_top: float


def rank(
    policies: Sequence[Policy], areas: np.ndarray, classes: Sequence[int], score: PrivacyScore, top: int
) -> list[Ranked]:
    """The best first. Intervals at 95 % by drawing pictures with replacement, the same ones for all policies."""
    labels = torch.as_tensor(classes)
    found = _scores(areas, labels, score)
    drawn = _resampled(areas, labels, score)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    # at most `top` per draw; equal scores share the place by their order here
    places = np.argsort(np.argsort(drawn, axis=1, kind="stable"), axis=1, kind="stable")
    in_top = (places < top).mean(0)
    means = areas.mean(1)
    ranked = [
        Ranked(policy=policy, privacy=float(found[k]), low=float(low[k]), high=float(high[k]), area=float(means[k]),
               in_top=float(in_top[k]))
        for k, policy in enumerate(policies)
    ]  # fmt: skip
    return sorted(ranked, key=lambda one: (one.privacy, one.policy.alternatives))


def _scores(areas: np.ndarray, labels: torch.Tensor, score: PrivacyScore) -> np.ndarray:
    return combined(score, torch.from_numpy(areas), labels).numpy()


def _resampled(areas: np.ndarray, labels: torch.Tensor, score: PrivacyScore) -> np.ndarray:
    """The score of every policy on every draw of pictures, [draw, policy]."""
    rng, count = np.random.default_rng(areas.shape[1]), areas.shape[1]
    draws = rng.integers(0, count, (RESAMPLES, count))
    return np.stack([_scores(areas[:, drawn], labels[drawn], score) for drawn in draws])


def hybrid(ranked: Sequence[Policy], count: int) -> Policy | None:
    """The best policies without a common transformation (ATS, section 4.5), greedily; None if none does anything."""
    chosen: list[tuple[int, ...]] = []
    used: set[object] = set()
    for policy in ranked:
        (slots,) = policy.alternatives
        here = {policy.library.entries[place].function for place in slots} - {None}
        if here and not here & used and len(chosen) < count:
            chosen.append(slots)
            used |= here
    return Policy(ranked[0].library, tuple(chosen)) if chosen else None
