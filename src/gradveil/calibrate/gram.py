"""The inner products of all candidates' updates, without all updates in memory at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

HELD_BYTES = 400_000_000  # of updates that are held while the others pass by
Rows = Callable[[int, int], Tensor]  # first, end -> [row, number]


def gram_of(rows: Rows, count: int, chunk: int, origin: Tensor, held_bytes: int = HELD_BYTES) -> Tensor:
    """[row, row] of the rows less `origin`, in double precision. A block of rows is held, later ones are streamed.

    rows: updates from a first to an end, as flat vectors
    chunk: how many are computed at once
    """
    block = max(chunk, held_bytes // max(1, origin.numel() * origin.element_size()))
    gram = torch.zeros(count, count, dtype=torch.float64)
    for first in range(0, count, block):
        end = min(first + block, count)
        held = torch.cat([rows(at, min(at + chunk, end)) - origin for at in range(first, end, chunk)])
        gram[first:end, first:end] = (held @ held.T).double().cpu()
        for at in range(end, count, chunk):
            other = slice(at, min(at + chunk, count))
            product = (held @ (rows(other.start, other.stop) - origin).T).double().cpu()
            gram[first:end, other], gram[other, first:end] = product, product.T
    return gram


def root_of(gram: Tensor) -> Tensor:
    """A matrix whose product with its transpose is the Gram matrix: with it normal numbers become inner products."""
    values, vectors = torch.linalg.eigh(gram)
    return vectors * values.clamp_min(0).sqrt()


def least_noise(gram: Tensor, root: Tensor, own: int, rivals: Tensor, draws: Tensor) -> tuple[Tensor, float]:
    """For each draw the least noise at which another candidate explains the update better than the true one.

    With u = g_v + s n, candidate c is nearer than v if 2 s <g_c - g_v, n> > |g_c - g_v|^2; the inner products <g_c, n>
    of one draw are normal with the Gram matrix as covariance. Also the chance to be named among candidates whose
    update is the same: of them one is drawn.

    own: row of the true candidate; rivals: rows of the others; draws: normal numbers [row, draw]
    """
    apart = gram.diagonal()[rivals] - 2 * gram[rivals, own] + gram[own, own]
    same = apart <= SAME * (gram.diagonal()[rivals] + gram[own, own])
    inner = (root[rivals] - root[own]) @ draws
    least = torch.where(inner > 0, apart[:, None] / (2 * inner), torch.inf)
    least[same] = torch.inf
    return least.amin(0), 1 / (1 + int(same.sum()))


SAME = 1e-9  # of the squared lengths: two candidates make the same update
