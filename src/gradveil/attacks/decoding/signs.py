"""The sign that sizes leave open at every pixel, the same for all pictures of a client: neighbors tell it.

Neighboring pixels, and the colors of one pixel, are alike, so their values over the pictures point the same way. Signs
spread along the edges that say most first (a maximum spanning tree); one sign for all remains, which public pictures
tell. Carlini et al. (2020) leave it to the descent and mend colors with a small network instead.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from torch import Tensor

FAINT = 1e-9  # keeps edges that say nothing: a tree must reach every pixel


def made_alike(pictures: Tensor, public: Tensor | None) -> Tensor:
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
