"""Jaccard similarity of tags (Yue et al., Gradient Obfuscation Gives a False Sense of Security in FL, USENIX 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.hashes import hash_tensors
from gradveil.core.metric import Facts, Metric, Source
from gradveil.core.types import Images
from gradveil.metrics.efficientnet_lite0 import PUBLISHED, EfficientNetLite0
from gradveil.metrics.features import AT_ONCE, Network, of_model
from gradveil.models.user import load_model
from gradveil.models.weights import load_weights


@dataclass(frozen=True, kw_only=True)
class Tagger:
    """`network` maps pictures in [0, 1] to logits, `features` to what these are made of."""

    name: str
    network: Callable[[Tensor], Tensor] = field(repr=False)
    features: Network = field(repr=False)
    source: Source | None = None

    @torch.no_grad()
    def logits(self, pictures: Tensor) -> Tensor:
        """[picture, label]"""
        return torch.cat([self.network(some.float().cpu()) for some in pictures.split(AT_ONCE)])


def load_tagger(spec: str, shape: tuple[int, int, int], classes: int) -> Tagger:
    """EfficientNet-Lite0 with the weights of a file, or the classifier that `file.py:factory` makes."""
    if ".py:" in spec:
        model = load_model(spec, classes=classes, shape=shape).eval()
        return Tagger(name=Path(spec).name, network=_quiet(model), features=of_model(model))
    network = EfficientNetLite0().eval()
    load_weights(network, Path(spec))
    digest = hash_tensors(network.state_dict())
    source = Source(sha256=digest, known=digest == PUBLISHED)
    return Tagger(name="EfficientNet-Lite0", network=_quiet(network), features=network.features, source=source)


def _quiet(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return model.requires_grad_(False)


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
