"""Jaccard similarity of tags (Yue et al., Gradient Obfuscation Gives a False Sense of Security in FL, USENIX 2023)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.metric import Facts, Metric
from gradveil.core.types import Images
from gradveil.metrics.tagger import Tagger

PAPER = "https://arxiv.org/abs/2206.04055"
JACCARD = Facts(name="jaccard", label="Jaccard of tags")


@JACCARD.builds
def jaccard(*, tagger: Tagger, top: int = 5, threshold: float = 0.0) -> Metric:
    """Share of tags that reconstruction and original have in common, among the first `top` or above `threshold`.

    Differs: the paper's tagger knows 9,600 tags of OpenImages, several a picture; ours is any classifier, by default
    of ImageNet. `threshold` is a probability (sigmoid), as for a network with several tags a picture.
    """
    if top < 1:
        raise ConfigError(f"must be 1 or more, got {top}", key="metrics.jaccard.top")
    if not 0 <= threshold < 1:
        raise ConfigError(f"must be 0 or more and below 1, got {threshold}", key="metrics.jaccard.threshold")
    return JACCARD.metric(lambda got, truth: tags_in_common(got, truth, tagger, top, threshold), tagger.source)


def tags_in_common(
    got: Images, truth: Images, tagger: Tagger, top: int = 5, threshold: float = 0.0
) -> Float[Tensor, "*client example"]:
    """|A and B| / |A or B| of the tags of each pair; two pictures without a tag have nothing in common."""
    shape = got.shape[-3:]
    logits = [tagger.logits(images.reshape(-1, *shape)) for images in (got, truth)]
    ours, theirs = (tags(some, top, threshold) for some in logits)
    both, either = (ours & theirs).sum(1), (ours | theirs).sum(1)
    shares = both.double() / either.clamp_min(1)
    return torch.where(logits[0].isnan().any(1), torch.nan, shares).reshape(got.shape[:-3])


def tags(logits: Float[Tensor, "picture label"], top: int = 5, threshold: float = 0.0) -> Bool[Tensor, "picture label"]:
    """Which labels a picture gets."""
    if threshold:
        return logits.sigmoid() > threshold
    first = logits.topk(min(top, logits.shape[1]), 1).indices
    return torch.zeros_like(logits, dtype=torch.bool).scatter(1, first, True)
