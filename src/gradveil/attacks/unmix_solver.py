"""The picture behind a linear map of its pixels: least squares with total variation, each picture for itself.

Total variation by lagged diffusivity (Vogel and Oman, 1996): a few rounds of a quadratic whose weights come from the
round before, each solved by conjugate gradients. Maps are sparse matrices, the same for every channel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Copies = Callable[[Tensor], Tensor]  # pictures [picture, ...] to [picture, copy, ...]
ROUNDS, STEPS = 4, 60
FLAT = 1e-2  # slopes below this are not told apart
PROBES = 64  # pixels that are looked at together


def matrices_of(copies: Copies, like: Tensor) -> list[Tensor]:
    """Each copy as a sparse matrix over the pixels of one channel, found by copying one lit pixel after the other."""
    channels, height, width = like.shape[-3:]
    parts: list[tuple[Tensor, Tensor]] = []
    for first in range(0, height * width, PROBES):
        lit = torch.arange(first, min(first + PROBES, height * width), device=like.device)
        probe = like.new_zeros(len(lit), channels, height * width)
        probe[torch.arange(len(lit)), :, lit] = 1.0
        seen = copies(probe.unflatten(-1, (height, width)))[:, :, 0].flatten(2).movedim(0, 2)  # [copy, to, from]
        at = seen.nonzero()
        parts.append((at + at.new_tensor([0, 0, first]), seen[tuple(at.T)]))
    number = copies(like.new_zeros(1, channels, height, width)).shape[1]
    at, weight = (torch.cat(each) for each in zip(*parts, strict=True))
    return [sparse(at[at[:, 0] == k, 1:].T, weight[at[:, 0] == k], height * width) for k in range(number)]


def sparse(at: Tensor, weight: Tensor, pixels: int) -> Tensor:
    return torch.sparse_coo_tensor(at, weight, (pixels, pixels), check_invariants=False).coalesce()


def mean_of(matrices: list[Tensor]) -> Tensor:
    total = matrices[0]
    for matrix in matrices[1:]:
        total = total + matrix
    return (total / len(matrices)).coalesce()


def apply_map(matrix: Tensor, pictures: Tensor) -> Tensor:
    """To every channel of every picture."""
    flat = pictures.flatten(-2)
    return torch.sparse.mm(matrix, flat.flatten(0, -2).T.contiguous()).T.reshape(flat.shape).view(pictures.shape)


def solve(matrix: Tensor, leaked: Tensor, tv: float) -> Tensor:
    """Minimizes |matrix x - leaked|^2 / 2 + tv * TV(x), for pictures [picture, channel, height, width]."""
    back = matrix.t().coalesce()
    target, x, stiff = apply_map(back, leaked), leaked, torch.full_like(leaked[:, :1], 1 / FLAT).unsqueeze(0)
    for _ in range(ROUNDS):

        def normal(z: Tensor, stiff: Tensor = stiff) -> Tensor:
            return apply_map(back, apply_map(matrix, z)) + tv * gather_slopes(stiff * slopes(z))

        x = conjugate_gradients(normal, target, x)
        stiff = (slopes(x).square().sum((0, 2), keepdim=True) + FLAT**2).rsqrt()
    return x


def slopes(pictures: Tensor) -> Tensor:
    """Differences to the right and down, [2, picture, channel, height, width], zero at the border."""
    both = pictures.new_zeros(2, *pictures.shape)
    both[0, ..., :, :-1] = pictures[..., :, 1:] - pictures[..., :, :-1]
    both[1, ..., :-1, :] = pictures[..., 1:, :] - pictures[..., :-1, :]
    return both


def gather_slopes(both: Tensor) -> Tensor:
    """The transpose of `slopes`."""
    right, down = both[0, ..., :, :-1], both[1, ..., :-1, :]
    pictures = torch.zeros_like(both[0])
    pictures[..., :, 1:] += right
    pictures[..., :, :-1] -= right
    pictures[..., 1:, :] += down
    pictures[..., :-1, :] -= down
    return pictures


def conjugate_gradients(normal: Callable[[Tensor], Tensor], target: Tensor, start: Tensor) -> Tensor:
    """Solves normal(x) = target for every picture by itself."""
    x, rest = start, target - normal(start)
    direction, length = rest, _inner(rest, rest)
    tiny = torch.finfo(x.dtype).tiny  # a picture that is solved stands still
    for _ in range(STEPS):
        ahead = normal(direction)
        pace = length / _inner(direction, ahead).clamp_min(tiny)
        x, rest = x + pace * direction, rest - pace * ahead
        before, length = length, _inner(rest, rest)
        direction = rest + length / before.clamp_min(tiny) * direction
    return x


def _inner(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((-3, -2, -1), keepdim=True)
