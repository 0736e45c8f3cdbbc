"""What a federation adds around a client's gradient: the pull of FedProx (Li et al., 2020).

It sees what the defense has made of the gradient, and is no defense.
"""

from __future__ import annotations

from collections.abc import Callable

from gradveil.core.types import Batch, GradientFn, Params, Update
from gradveil.train.settings import Federation

Around = Callable[[GradientFn], GradientFn]


def fedprox(gradient: GradientFn, anchor: Params, pull: float) -> GradientFn:
    """The gradient of the loss plus `pull` / 2 times the squared distance from `anchor`, the weights as sent."""

    def proximal_gradient(params: Params, batch: Batch) -> Update:
        return {name: g + pull * (params[name] - anchor[name]) for name, g in gradient(params, batch).items()}

    return proximal_gradient


def local_optimizer(sent: Params, federation: Federation) -> Around:
    """What the federation adds around a client's gradient."""
    if federation.method != "fedprox":
        return lambda gradient: gradient
    return lambda gradient: fedprox(gradient, sent, federation.proximal)
