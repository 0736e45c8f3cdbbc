"""From encodings and their weights to the pictures: least squares, and the same where signs are lost (LODA, eq. 3).

Pixels are in [-1, 1] here, 0 is mid-gray, and every pixel is a problem of its own: weights @ pictures + offset is the
encoding, or has its size. The second is solved by turns: given the signs it is least squares, given the pictures the
signs are known (Gerchberg and Saxton, 1972). Many starts at once, each pixel keeps its best. Differs from the papers,
which descend with Adam from one start: a few numbers for each pixel are found more surely this way. Their descent is
`descend`, which takes a smoothness prior too.

One sign for every pixel stays open, the same for all pictures of a client; neighbors tell it (`agree_on_signs`).
Neighboring pixels, and the colors of one pixel, are alike, so their values over the pictures point the same way. Signs
spread along the strongest edges first (a maximum spanning tree); the sign that remains for all, public pictures tell.
Carlini et al. (2020) leave it to the descent and mend colors with a small network instead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from torch import Tensor

from gradveil.core.seeds import Seed
from gradveil.engine.priors.prior import TotalVariation

TURNS = 60
STARTS = 48
CUT = 1e-5  # of the largest singular value: what is below is rounding
FAINT = 1e-9  # keeps edges that say nothing: a tree must reach every pixel


def solve(weights: Tensor, targets: Tensor) -> Tensor:
    """Least squares, [picture, pixel]; what the weights do not tell stays gray."""
    return torch.linalg.pinv(weights, rtol=CUT) @ targets


def solve_without_signs(weights: Tensor, offset: Tensor, sizes: Tensor, seed: Seed) -> Tensor:
    """The pictures with |weights @ pictures + offset| nearest to `sizes`, [encoding, pixel]; a sign per pixel is open
    where there is no offset."""
    inverse = torch.linalg.pinv(weights, rtol=CUT)
    rng = seed.at("signs").rng()
    best = least = None
    for _ in range(STARTS):
        shown = weights @ (2 * torch.rand(weights.shape[1], sizes.shape[1], generator=rng).to(sizes) - 1) + offset
        pictures = inverse @ (sizes.copysign(shown) - offset)
        for _ in range(TURNS):
            moved = inverse @ (sizes.copysign(weights @ pictures + offset) - offset)
            if torch.equal(moved, pictures):  # no sign has changed, and none will
                break
            pictures = moved
        left = ((weights @ pictures + offset).abs() - sizes).square().sum(0)
        if best is None or least is None:
            best, least = pictures, left
            continue
        better = left < least
        best, least = torch.where(better, pictures, best), torch.where(better, left, least)
    assert best is not None
    return best


def descend(
    start: Tensor, misfit: Callable[[Tensor], Tensor], smooth: float, steps: int = 1000, rate: float = 0.01
) -> Tensor:
    """Adam on the misfit and total variation, inside the box; [picture, channel, height, width]."""
    pictures = start.clamp(-1, 1).clone().requires_grad_()
    optimizer = torch.optim.Adam([pictures], rate)
    variation = TotalVariation()
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = misfit(pictures) + smooth * variation.of(pictures.unsqueeze(0)).sum()
            loss.backward()
        optimizer.step()
        with torch.no_grad():
            pictures.clamp_(-1, 1)
    return pictures.detach()


def misfit_of(weights: Tensor, offset: Tensor, encodings: Tensor, flipped: bool) -> Callable[[Tensor], Tensor]:
    """Mean squared difference from what the pictures would give, or from its size."""

    def misfit(pictures: Tensor) -> Tensor:
        given = torch.einsum("es,schw->echw", weights, pictures) + offset
        return ((given.abs() - encodings.abs()) if flipped else (given - encodings)).square().mean()

    return misfit


def agree_on_signs(pictures: Tensor, public: Tensor | None) -> Tensor:
    """Pictures in [-1, 1] with a sign at every pixel such that neighbors agree, [picture, channel, height, width]."""
    flat = pictures.flatten(1)
    sign = _spread(flat.T.cpu().double(), _edges(*pictures.shape[1:])).to(flat)
    alike = (flat * sign).view_as(pictures)
    if public is None:
        return alike * (1 if alike.mean() <= 0 else -1)  # photographs are darker than mid-gray, if anything
    expected = 2 * public.to(pictures).mean(0) - 1
    return alike * (1 if (alike.mean(0) * expected).sum() >= 0 else -1)


def _spread(values: Tensor, edges: Tensor) -> Tensor:
    """+1 or -1 for every pixel, from the first one outward; `values` are [pixel, picture]."""
    agreement = (values[edges[0]] * values[edges[1]]).sum(1).numpy()
    strength = 1 / (np.abs(agreement) + FAINT)  # the smallest are taken first
    count = len(values)
    graph = csr_array((strength, (edges[0].numpy(), edges[1].numpy())), shape=(count, count))
    order, before = breadth_first_order(minimum_spanning_tree(graph), 0, directed=False)
    sign = torch.ones(count, dtype=values.dtype)
    for pixel in order[1:]:
        parent = int(before[pixel])
        sign[pixel] = sign[parent] if (values[pixel] * values[parent]).sum() >= 0 else -sign[parent]
    return sign


def _edges(channels: int, height: int, width: int) -> Tensor:
    """Pairs of pixel numbers that stand side by side, one above the other, or for two colors of one place."""
    number = torch.arange(channels * height * width).view(channels, height, width)
    pairs = [(number[1:], number[:-1]), (number[:, 1:], number[:, :-1]), (number[..., 1:], number[..., :-1])]
    return torch.stack([torch.cat([pair[side].flatten() for pair in pairs]) for side in range(2)])
