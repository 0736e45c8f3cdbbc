"""Identification: can the original be picked out of a gallery with the reconstruction in hand?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.metric import Metric
from gradveil.core.types import Images
from gradveil.metrics.features import FeatureGallery
from gradveil.metrics.nearest import copies, rivals_ahead

TOP = 5
WINDOW = 5  # pixels: what is coarser is light and color, and no detail

Gallery = Float[Tensor, "other channel height width"]


def retrieval(*, gallery: Gallery) -> Metric:
    """Identification: 1 if the original is the nearest to the reconstruction in a gallery, else 0."""
    return _on_pixels("retrieval", 1, gallery)


def retrieval_top5(*, gallery: Gallery) -> Metric:
    """Identification: 1 if the original is among the 5 nearest to the reconstruction in a gallery, else 0."""
    return _on_pixels("retrieval-top5", TOP, gallery)


def retrieval_detail(*, gallery: Gallery) -> Metric:
    """As `retrieval`, by detail: pictures are compared without the local mean of brightness and color."""
    return Metric(
        name="retrieval-detail",
        score=lambda got, truth: identified_by_detail(got, truth, gallery),
        more_is_leakier=True,
        unit="",
        summary=f"Is the original the nearest of {_others(gallery) + 1} pictures by their detail? 1 yes, 0 no.",
        chance=1 / (len(gallery) + 1),
    )


def retrieval_features(*, features: FeatureGallery) -> Metric:
    """As `retrieval`, by the features of a network."""
    return _on_features("retrieval-features", 1, features)


def retrieval_features_top5(*, features: FeatureGallery) -> Metric:
    """As `retrieval-top5`, by the features of a network."""
    return _on_features("retrieval-features-top5", TOP, features)


def _on_pixels(name: str, top: int, gallery: Tensor) -> Metric:
    return Metric(
        name=name,
        score=lambda got, truth: identified(got, truth, gallery, top),
        more_is_leakier=True,
        unit="",
        summary=f"Is the original {_place(top)} of {_others(gallery) + 1} pictures? 1 yes, 0 no.",
        chance=min(1.0, top / (len(gallery) + 1)),
    )


def _on_features(name: str, top: int, features: FeatureGallery) -> Metric:
    return Metric(
        name=name,
        score=lambda got, truth: recognized(got, truth, features, top),
        more_is_leakier=True,
        unit="",
        summary=f"Is the original {_place(top)} of {_others(features.pictures) + 1} by {features.name}? 1 yes, 0 no.",
        chance=min(1.0, top / (len(features.pictures) + 1)),
        source=features.source,
    )


def _place(top: int) -> str:
    return "the nearest" if top == 1 else f"among the {top} nearest"


def _others(gallery: Tensor) -> int:
    if len(gallery) == 0:
        raise ConfigError("metrics.retrieval: the gallery is empty, give at least one other picture")
    return len(gallery)


def identified(got: Images, truth: Images, gallery: Gallery, top: int = 1) -> Float[Tensor, "*client example"]:
    """Top-k by mean squared error. A tie counts for the rival; a copy of the original in the gallery is no rival.

    A reconstruction that is not a number scores NaN: it shows nothing, but neither was it measured.
    """
    _check(got, gallery)
    guess, original = (images.flatten(-3).flatten(0, -2) for images in (got, truth))
    ahead = rivals_ahead(guess, original, gallery.flatten(1).to(guess.device))
    return _hits(ahead, top).reshape(got.shape[:-3])


def identified_by_detail(got: Images, truth: Images, gallery: Gallery) -> Float[Tensor, "*client example"]:
    """Top-1 by the correlation of details; ties and copies as in `identified`. A flat picture finds nobody."""
    _check(got, gallery)
    shape = got.shape[-3:]
    guess, original = (detail(images.reshape(-1, *shape)) for images in (got, truth))
    ahead = rivals_ahead(guess, original, detail(gallery.to(guess.device)))
    return _hits(ahead, 1).reshape(got.shape[:-3])


def detail(pictures: Float[Tensor, "picture channel height width"]) -> Float[Tensor, "picture number"]:
    """What is left of a picture without its local means, as a direction: the nearest has the largest correlation."""
    window = min(WINDOW, *pictures.shape[-2:])
    window -= 1 - window % 2
    means = F.avg_pool2d(pictures.double(), window, 1, window // 2, count_include_pad=False)
    return F.normalize((pictures.double() - means).flatten(1))


def recognized(got: Images, truth: Images, features: FeatureGallery, top: int = 1) -> Float[Tensor, "*client example"]:
    """Top-k by the angle between features; ties and copies as in `identified`."""
    _check(got, features.pictures)
    shape = got.shape[-3:]
    guess, original = (features.embed(images.reshape(-1, *shape).cpu()) for images in (got, truth))
    nearer = (guess @ features.vectors.T) >= (guess * original).sum(1, keepdim=True)
    same = copies(truth.reshape(-1, *shape).flatten(1).cpu(), features.pictures.flatten(1).cpu())
    ahead = torch.where(guess.isnan().any(1), torch.nan, (nearer & ~same).sum(1).double())
    return _hits(ahead, top).reshape(got.shape[:-3])


def _hits(ahead: Tensor, top: int) -> Tensor:
    return torch.where(ahead.isnan(), ahead, (ahead < top).to(ahead))


def _check(got: Tensor, gallery: Tensor) -> None:
    if gallery.shape[-3:] != got.shape[-3:]:
        raise ConfigError(
            f"metrics.retrieval: the gallery holds pictures of {tuple(gallery.shape[-3:])}, "
            f"the audit of {tuple(got.shape[-3:])}, give a gallery of the same size"
        )
