"""Several runs that agree with each other (Yin et al., 2021, section 3.4).

Each restart of a client is pulled toward the mean of all of them. Differs: the paper registers the pictures by
RANSAC-flow; here `registered` takes the best whole shift, found by cross-correlation, and it is found anew in every
step, since a penalty has no memory. Pictures of a batch meet by their place in it, so labels should not repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradveil.core.observation import Observation
from gradveil.core.types import Images
from gradveil.engine.priors.prior import Penalty, Prior, Weight, dealt


@dataclass(frozen=True)
class GroupConsistency:
    """Mean square of the way to the mean of a client's restarts, which must all be in one chunk.

    `reach` is the largest shift that is tried, as a share of the picture's side.
    """

    weight: Weight = 0.01
    registered: bool = False
    reach: float = 0.25

    def bind(self, seen: Observation, restarts: Tensor) -> Penalty:
        size = int(restarts.max()) + 1
        assert torch.equal(restarts, torch.arange(size).repeat(len(restarts) // size)), "restarts of a client are torn"
        weight = dealt(self.weight, restarts, next(iter(seen.update.values())))

        def penalty(pixels: Images, fed: Images) -> Tensor:
            group = pixels.detach().unflatten(0, (-1, size))
            goal = self.consensus(group).flatten(0, 1)
            return weight * (pixels - goal).square().flatten(1).mean(1)

        return penalty

    def consensus(self, group: Tensor) -> Tensor:
        """What each restart is pulled toward, [client, restart, example, channel, height, width]."""
        if not self.registered:
            return _mean(group).expand_as(group)
        shift = best_shift(group, _mean(group).expand_as(group), self.reach)
        return roll(_mean(roll(group, -shift)).expand_as(group), shift)


def _mean(group: Tensor) -> Tensor:
    """Over the restarts; one that is no number any more does not take the others along."""
    return group.nanmean(1, keepdim=True)


def best_shift(pictures: Tensor, of: Tensor, reach: float = 0.5) -> Tensor:
    """Rows and columns by which `of` is rolled to look most like `pictures`, [..., 2]; both [..., C, H, W]."""
    height, width = pictures.shape[-2:]
    spectrum = torch.fft.rfft2(pictures) * torch.fft.rfft2(of).conj()
    likeness = torch.fft.irfft2(spectrum.sum(-3), s=(height, width))
    far = _distance(height, likeness).unsqueeze(-1) > reach * height
    far = far | (_distance(width, likeness) > reach * width)
    best = likeness.nan_to_num(0, 0, 0).masked_fill(far, -torch.inf).flatten(-2).argmax(-1)
    return torch.stack([best // width, best % width], -1)


def _distance(size: int, like: Tensor) -> Tensor:
    """How far each shift goes, around the edge if that is shorter."""
    steps = torch.arange(size, device=like.device)
    return torch.minimum(steps, size - steps)


def roll(pictures: Tensor, by: Tensor) -> Tensor:
    """Each picture rolled by its own rows and columns."""
    height, width = pictures.shape[-2:]
    rows = (torch.arange(height, device=by.device) - by[..., :1]) % height
    columns = (torch.arange(width, device=by.device) - by[..., 1:]) % width
    places = (rows.unsqueeze(-1) * width + columns.unsqueeze(-2)).flatten(-2).unsqueeze(-2)
    return pictures.flatten(-2).gather(-1, places.expand(*pictures.shape[:-2], -1)).view_as(pictures)


def together(priors: Sequence[Prior], restarts: int) -> int:
    """How many trials in a row belong together."""
    return restarts if any(isinstance(prior, GroupConsistency) for prior in priors) else 1
