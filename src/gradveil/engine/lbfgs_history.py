"""What L-BFGS remembers, for many trials at once, and the direction that follows from it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gradveil.core.types import Latent


class Pairs(NamedTuple):
    """The last `memory` moves s and gradient changes y, newest last; a slot not yet filled has rho = 1 / s.y = 0."""

    s: Tensor  # [trial, memory, number]
    y: Tensor
    rho: Tensor  # [trial, memory]


def empty_pairs(like: Tensor, memory: int) -> Pairs:
    """Nothing remembered; `like` is [trial, number]."""
    slots = torch.zeros_like(like).unsqueeze(1).repeat(1, memory, 1)
    return Pairs(slots, slots.clone(), slots[..., 0].clone())


def two_loops(grad: Tensor, pairs: Pairs) -> Tensor:
    """The inverse Hessian's guess times the gradient. Empty slots have rho = 0 and change nothing."""
    q, alphas = grad, []
    slots = range(pairs.rho.shape[1])
    for i in reversed(slots):
        alphas.append(pairs.rho[:, i] * dot(pairs.s[:, i], q))
        q = q - column(alphas[-1]) * pairs.y[:, i]
    q = column(_scale(pairs)) * q
    for i in slots:
        beta = pairs.rho[:, i] * dot(pairs.y[:, i], q)
        q = q + column(alphas.pop() - beta) * pairs.s[:, i]
    return q


def _scale(pairs: Pairs) -> Tensor:
    """s.y / y.y of the newest pair; 1 where there is none."""
    rho, y = pairs.rho[:, -1], pairs.y[:, -1]
    return (1 / (rho * dot(y, y))).masked_fill(rho <= 0, 1.0)


def push_pair(pairs: Pairs, s: Tensor, y: Tensor, keep: Tensor) -> Pairs:
    """The newest pair shifted in, where it is to be kept: its curvature s.y must be positive there."""
    newest = Pairs(s.unsqueeze(1), y.unsqueeze(1), (1 / dot(s, y)).unsqueeze(1))
    shifted = [torch.cat([slots[:, 1:], one], 1) for slots, one in zip(pairs, newest, strict=True)]
    return Pairs(*(where(keep, one, slots) for one, slots in zip(shifted, pairs, strict=True)))


def clear_pairs(pairs: Pairs, clear: Tensor) -> Pairs:
    return Pairs(*(where(clear, torch.zeros_like(one), one) for one in pairs))


def rounding_of(s: Tensor, y: Tensor) -> Tensor:
    """What s.y may be by rounding alone."""
    limits = torch.finfo(s.dtype)
    return (limits.eps * s.norm(dim=-1) * y.norm(dim=-1)).clamp_min(limits.tiny)


def where(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(mask.view(-1, *[1] * (a.dim() - 1)), a, b)


def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)


def column(per_trial: Tensor) -> Tensor:
    return per_trial.unsqueeze(-1)


def flat(z: Latent) -> Tensor:
    return torch.cat([x.flatten(1) for x in z.values()], 1)


def unflat(numbers: Tensor, like: Latent) -> Latent:
    parts = numbers.split([x[0].numel() for x in like.values()], 1)
    return {name: part.view_as(x) for (name, x), part in zip(like.items(), parts, strict=True)}
