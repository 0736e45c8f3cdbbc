"""A classifier whose labels are taken for what a person would say of a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil.core.hashes import hash_tensors
from gradveil.core.metric import Source
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
