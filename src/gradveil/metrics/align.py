"""Which reconstruction is of which picture: an update does not say in what order its pictures were."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from gradveil.core.types import Images

BLANK = 0.5  # what stands in for a picture that the attack did not find
HOPELESS = 1e12  # cost of a reconstruction that is not a number: it is matched last


class Aligned(NamedTuple):
    """Reconstructions in the order of the truth; `matched` is false where there was none and mid-gray stands in.

    places: of each original the reconstruction that is matched with it; -1: none.
    """

    images: Tensor
    matched: Tensor
    places: Tensor


def align(
    got: Float[Tensor, "*client guess channel height width"],
    truth: Images,
    found: Bool[Tensor, "*client guess"] | None = None,
) -> Aligned:
    """One-to-one matching per client with the least total squared error (Hungarian method); only `found` ones count."""
    lead, count = truth.shape[:-4], truth.shape[-4]
    guesses, originals = (x.reshape(-1, *x.shape[-4:]) for x in (got, truth))
    usable = torch.ones(guesses.shape[:2], dtype=torch.bool) if found is None else found.reshape(guesses.shape[:2])
    images = torch.full_like(originals, BLANK)
    matched = torch.zeros(originals.shape[:2], dtype=torch.bool, device=truth.device)
    places = torch.full(originals.shape[:2], -1, device=truth.device)
    for client, (guess, original, use) in enumerate(zip(guesses, originals, usable.to(got.device), strict=True)):
        rows, columns = linear_sum_assignment(_cost(guess[use], original))
        images[client, columns] = guess[use][rows].to(images)
        matched[client, columns] = True
        places[client, columns] = use.nonzero()[:, 0][rows].to(places)
    return Aligned(images.reshape(truth.shape), matched.reshape(*lead, count), places.reshape(*lead, count))


def _cost(guess: Tensor, original: Tensor) -> np.ndarray:
    """Squared error of every pair. Differences are taken one by one: the product form loses small errors."""
    x, y = (images.detach().double().flatten(1) for images in (guess, original))
    cost = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()
    return cost.nan_to_num(HOPELESS, HOPELESS).clamp_max(HOPELESS).cpu().numpy()
