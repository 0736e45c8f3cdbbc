"""Identification: can the original be picked out of a gallery with the reconstruction in hand?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gradveil.errors import ConfigError
from gradveil.metrics.base import Metric
from gradveil.types import Images

AT_ONCE = 64  # gallery pictures; bounds the memory, not the result


def retrieval(*, gallery: Float[Tensor, "other channel height width"]) -> Metric:
    """1 where the original is the nearest of itself and a gallery of other pictures, else 0; its mean is a rate."""
    if len(gallery) == 0:
        raise ConfigError("metrics.retrieval: the gallery is empty, give at least one other picture")
    return Metric(
        name="retrieval",
        score=lambda got, truth: identified(got, truth, gallery),
        more_is_leakier=True,
        unit="",
        summary=f"Is the original the nearest of {len(gallery) + 1} pictures? 1 yes, 0 no.",
        chance=1 / (len(gallery) + 1),
    )


def identified(
    got: Images, truth: Images, gallery: Float[Tensor, "other channel height width"]
) -> Float[Tensor, "*client example"]:
    """Top-1 by mean squared error. A tie counts as not identified; a copy of the original in the gallery is no rival.

    A reconstruction that is not a number scores NaN: it shows nothing, but neither was it measured.
    """
    if gallery.shape[-3:] != got.shape[-3:]:
        raise ConfigError(
            f"metrics.retrieval: the gallery holds pictures of {tuple(gallery.shape[-3:])}, "
            f"the audit of {tuple(got.shape[-3:])}, give a gallery of the same size"
        )
    guess, original = (images.double().flatten(-3).flatten(0, -2) for images in (got, truth))
    others = gallery.flatten(1).to(guess.device).split(AT_ONCE)
    scores = [_nearest(g, t, others) for g, t in zip(guess, original, strict=True)]
    return torch.stack(scores).reshape(got.shape[:-3])


def _nearest(guess: Tensor, original: Tensor, others: Sequence[Tensor]) -> Tensor:
    own = (guess - original).square().sum()
    beaten = all(_beats(own, guess, original, some.double()) for some in others)
    return own if own.isnan() else torch.full_like(own, beaten)


def _beats(own: Tensor, guess: Tensor, original: Tensor, others: Tensor) -> bool:
    rivals = others[(others != original).any(1)]
    return bool((own < (rivals - guess).square().sum(1)).all())
