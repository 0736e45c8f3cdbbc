"""The shapes that everything else speaks in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

Images = Float[Tensor, "*client example channel height width"]  # always in [0, 1]
Labels = Float[Tensor, "..."]  # [*client, example, class, ...]: always soft, of a picture or of each pixel
PerClient = Float[Tensor, " client"]
Params = Mapping[str, Tensor]  # by name, never by position
Update = Mapping[str, Tensor]
Latent = Mapping[str, Tensor]


class Batch(NamedTuple):
    """What one client trains on. A pytree, so vmap sees through it."""

    images: Tensor
    labels: Tensor


GradientFn = Callable[[Params, Batch], Update]
