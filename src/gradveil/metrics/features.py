"""Pictures as vectors: what a network makes of them before it decides. Two that look alike point the same way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from gradveil.core.metric import Source
from gradveil.metrics.backbones import ALEXNET
from gradveil.metrics.lpips import prepare
from gradveil.metrics.weights import read_weights

AT_ONCE = 8  # pictures; bounds the memory, not the result
ENLARGED = 64  # pixels that AlexNet looks at, at least

Network = Callable[[Tensor], Tensor]  # pictures [n, c, h, w] in [0, 1] to vectors [n, d]


@dataclass(frozen=True, kw_only=True)
class FeatureGallery:
    """A gallery, and the network that it is searched with."""

    name: str  # of the network, for people
    network: Network = field(repr=False)
    pictures: Tensor = field(repr=False)
    source: Source | None = None

    @cached_property
    def vectors(self) -> Tensor:
        """Of the gallery: computed once."""
        return self.embed(self.pictures.cpu())

    @torch.no_grad()
    def embed(self, pictures: Tensor) -> Tensor:
        """Vectors of length 1 in float64, [picture, d]; of a picture that is not a number, not a number."""
        vectors = torch.cat([self.network(some.float()) for some in pictures.split(AT_ONCE)]).double()
        unit = vectors / vectors.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
        broken = pictures.flatten(1).isnan().any(1, keepdim=True)
        return torch.where(broken, torch.nan, unit)


def of_model(model: nn.Module) -> Network:
    """What the model's last linear layer is given; where it has none, what the model returns."""
    own = copy.deepcopy(model).cpu().float().eval()
    linear = [module for module in own.modules() if isinstance(module, nn.Linear)]

    def network(pictures: Tensor) -> Tensor:
        seen: list[Tensor] = []
        hook = linear[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0])) if linear else None
        try:
            returned = own(pictures)
        finally:
            if hook is not None:
                hook.remove()
        return (seen[-1] if seen else returned).flatten(1)

    return network


def of_alexnet(path: Path) -> tuple[Network, Source]:
    """The mean over places of what AlexNet's last convolution sees: 256 numbers."""
    weights, source = read_weights(path, ALEXNET.shapes(), ALEXNET.published, "AlexNet's LPIPS v0.1 weights")

    def network(pictures: Tensor) -> Tensor:
        *_, last = ALEXNET.features(prepare(pictures, ENLARGED, ALEXNET), weights)
        return last.mean((2, 3))

    return network, source
