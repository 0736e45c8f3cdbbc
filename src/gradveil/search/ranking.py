"""Policies in the order of their privacy score, with the doubt that a finite number of pictures leaves, and the race.

The race is successive halving on pictures: the worse half leaves after a few, the better half is scored on more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import stdtrit

from gradveil.search.privacy import PrivacyScore, combine
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
    drawn = _resample(areas, labels, score)
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
    return combine(score, torch.from_numpy(areas), labels).numpy()


def _resample(areas: np.ndarray, labels: torch.Tensor, score: PrivacyScore) -> np.ndarray:
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


LEVEL = 0.95
AT_ONCE = 128  # pictures between two lines of a journal
SMALLEST = 8  # pictures: fewer say nothing of their own spread
RUNGS = 5
YARDSTICKS = 16  # policies at each end of each scale


def blocks(images: int, rungs: int = RUNGS) -> tuple[range, ...]:
    """The pictures in blocks that double what was seen before: of 100, the first 8, then 8, 16, 32 and 36 more.

    >>> [len(block) for block in blocks(100)]
    [8, 8, 16, 32, 36]
    """
    end = min(images, max(SMALLEST, -(-images // 2 ** (rungs - 1))))
    found = [range(0, end)]
    while end < images:
        found.append(range(end, min(images, 2 * end)))
        end = found[-1].stop
    return tuple(found)


def whole(images: int) -> tuple[range, ...]:
    """The pictures without a race: all at once as far as that is wise."""
    return tuple(range(first, min(images, first + AT_ONCE)) for first in range(0, images, AT_ONCE))


def survivors(areas: np.ndarray, top: int) -> list[int]:
    """Of areas[policy, picture], small is good: the better half by the mean, and all that may be among the best `top`.

    A policy may be among them if the interval of its paired difference from the last of them reaches 0.
    """
    order = np.argsort(areas.mean(1), kind="stable")
    keep = max(top, -(-len(order) // 2))
    last = areas[order[min(top, len(order)) - 1]]
    near = [place for place in order[keep:].tolist() if _lowest(areas[place] - last) <= 0]
    return sorted([*order[:keep].tolist(), *near])


def leaders(scores: np.ndarray, top: int) -> list[int]:
    """The better half of scores[policy], small is good, and at least `top`."""
    order = np.argsort(scores, kind="stable")
    return sorted(order[: max(top, -(-len(order) // 2))].tolist())


def yardsticks(areas: np.ndarray, count: int = YARDSTICKS) -> list[int]:
    """Those with the smallest and the largest means and variances of areas[policy, picture]."""
    scales = (areas.mean(1), areas.var(1))
    ends = [np.argsort(sign * scale, kind="stable")[:count] for scale in scales for sign in (1, -1)]
    return np.unique(np.concatenate(ends)).tolist()


def _lowest(differences: np.ndarray) -> float:
    """The lower end of the two-sided t interval of the mean difference."""
    count = len(differences)
    if count < 2:
        return float("-inf")
    reach = stdtrit(count - 1, (1 + LEVEL) / 2) * differences.std(ddof=1) / np.sqrt(count)
    return float(differences.mean() - reach)
