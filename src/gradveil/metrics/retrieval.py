"""Identification: can the original be picked out of a gallery with the reconstruction in hand?"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.metric import Facts, Lookup, Metric
from gradveil.core.types import Images
from gradveil.metrics.features import FeatureGallery
from gradveil.metrics.nearest import copies, rivals_ahead

TOP = 5
WINDOW = 5  # pixels: what is coarser is light and color, and no detail

Gallery = Float[Tensor, "other channel height width"]


RETRIEVAL = Facts(name="retrieval", label="Nearest in the gallery", kind="rate", lookup=Lookup(top=1, by="pixels"))
RETRIEVAL_RANK = Facts(
    name="retrieval-rank",
    label="Rank in the gallery",
    more_is_leakier=False,
    kind="rank",
    columns=("worst", "median"),
    digits=0,
    tolerance=20.0,  # places: 0.1 dB passes many rivals where a gallery is dense
)
RETRIEVAL_TOP5 = replace(RETRIEVAL, name="retrieval-top5", label="Top 5", lookup=Lookup(top=TOP, by="pixels"))
RETRIEVAL_DETAIL = replace(RETRIEVAL, name="retrieval-detail", label="By detail", lookup=Lookup(top=1, by="detail"))
RETRIEVAL_FEATURES = replace(
    RETRIEVAL, name="retrieval-features", label="By features", lookup=Lookup(top=1, by="features"), as_fed=False
)
RETRIEVAL_FEATURES_TOP5 = replace(
    RETRIEVAL,
    name="retrieval-features-top5",
    label="By features, top 5",
    lookup=Lookup(top=TOP, by="features"),
    as_fed=False,
)


@RETRIEVAL.builds
def retrieval(*, gallery: Gallery) -> Metric:
    """Identification: 1 if the original is the nearest to the reconstruction in a gallery, else 0."""
    check_gallery(gallery)
    return RETRIEVAL.metric(
        lambda got, truth: find_by_pixels(got, truth, gallery), among=lambda other: retrieval(gallery=other)
    )


@RETRIEVAL_TOP5.builds
def retrieval_top5(*, gallery: Gallery) -> Metric:
    """Identification: 1 if the original is among the 5 nearest to the reconstruction in a gallery, else 0."""
    check_gallery(gallery)
    return RETRIEVAL_TOP5.metric(
        lambda got, truth: find_by_pixels(got, truth, gallery, TOP), among=lambda other: retrieval_top5(gallery=other)
    )


@RETRIEVAL_RANK.builds
def retrieval_rank(*, gallery: Gallery) -> Metric:
    """At which place of the gallery the original stands, by squared error: 1 is the nearest to the reconstruction."""
    check_gallery(gallery)
    return RETRIEVAL_RANK.metric(
        lambda got, truth: count_ahead(got, truth, gallery) + 1, among=lambda other: retrieval_rank(gallery=other)
    )


@RETRIEVAL_DETAIL.builds
def retrieval_detail(*, gallery: Gallery) -> Metric:
    """As `retrieval`, by detail: pictures are compared without the local mean of brightness and color."""
    check_gallery(gallery)
    return RETRIEVAL_DETAIL.metric(
        lambda got, truth: find_by_detail(got, truth, gallery), among=lambda other: retrieval_detail(gallery=other)
    )


@RETRIEVAL_FEATURES.builds
def retrieval_features(*, features: FeatureGallery) -> Metric:
    """As `retrieval`, by the features of a network."""
    check_gallery(features.pictures)
    return RETRIEVAL_FEATURES.metric(
        lambda got, truth: find_by_features(got, truth, features),
        features.source,
    )


@RETRIEVAL_FEATURES_TOP5.builds
def retrieval_features_top5(*, features: FeatureGallery) -> Metric:
    """As `retrieval-top5`, by the features of a network."""
    check_gallery(features.pictures)
    return RETRIEVAL_FEATURES_TOP5.metric(
        lambda got, truth: find_by_features(got, truth, features, TOP),
        features.source,
    )


def check_gallery(gallery: Tensor) -> None:
    if len(gallery) == 0:
        raise ConfigError("the gallery is empty, give at least one other picture", key="metrics.retrieval")


def find_by_pixels(got: Images, truth: Images, gallery: Gallery, top: int = 1) -> Float[Tensor, "*client example"]:
    """Top-k by mean squared error. A tie counts for the rival; a copy of the original in the gallery is no rival.

    A reconstruction that is not a number scores NaN: it shows nothing, but neither was it measured.
    """
    return _hits(count_ahead(got, truth, gallery), top)


def count_ahead(got: Images, truth: Images, gallery: Gallery) -> Float[Tensor, "*client example"]:
    """How many of the gallery are at least as near as the original. Several metrics ask for the same: counted once."""
    global _last
    given = tuple((id(one), 0 if one.is_inference() else one._version) for one in (got, truth, gallery))
    if _last is not None and _last.given == given:
        return _last.ahead
    check_sizes(got, gallery)
    guess, original = (images.flatten(-3).flatten(0, -2) for images in (got, truth))
    ahead = rivals_ahead(guess, original, gallery.flatten(1).to(guess.device)).reshape(got.shape[:-3])
    _last = Counted(given, (got, truth, gallery), ahead)
    return ahead


class Counted(NamedTuple):
    """What was counted last; the tensors are held, so that no other can have their identity."""

    given: tuple[tuple[int, int], ...]
    tensors: tuple[Tensor, Tensor, Tensor]
    ahead: Tensor


_last: Counted | None = None


def find_by_detail(got: Images, truth: Images, gallery: Gallery) -> Float[Tensor, "*client example"]:
    """Top-1 by the correlation of details; ties and copies as in `find_by_pixels`. A flat picture finds nobody."""
    check_sizes(got, gallery)
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


def find_by_features(
    got: Images, truth: Images, features: FeatureGallery, top: int = 1
) -> Float[Tensor, "*client example"]:
    """Top-k by the angle between features; ties and copies as in `find_by_pixels`."""
    check_sizes(got, features.pictures)
    shape = got.shape[-3:]
    guess, original = (features.embed(images.reshape(-1, *shape).cpu()) for images in (got, truth))
    nearer = (guess @ features.vectors.T) >= (guess * original).sum(1, keepdim=True)
    same = copies(truth.reshape(-1, *shape).flatten(1).cpu(), features.pictures.flatten(1).cpu())
    ahead = torch.where(guess.isnan().any(1), torch.nan, (nearer & ~same).sum(1).double())
    return _hits(ahead, top).reshape(got.shape[:-3])


def _hits(ahead: Tensor, top: int) -> Tensor:
    return torch.where(ahead.isnan(), ahead, (ahead < top).to(ahead))


def check_sizes(got: Tensor, gallery: Tensor) -> None:
    if gallery.shape[-3:] != got.shape[-3:]:
        raise ConfigError(
            f"the gallery holds pictures of {tuple(gallery.shape[-3:])}, "
            f"the audit of {tuple(got.shape[-3:])}, give a gallery of the same size",
            key="metrics.retrieval",
        )
