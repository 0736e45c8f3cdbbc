"""What a federation adds around a client's gradient: the pull of FedProx (Li et al., 2020) and Nesterov's momentum.

Both see what the defense has made of the gradient, and neither is a defense.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch, GradientFn, Params, Update
from gradveil.train.settings import Federation

Around = Callable[[GradientFn], GradientFn]


def fedprox(gradient: GradientFn, anchor: Params, pull: float) -> GradientFn:
    """The gradient of the loss plus `pull` / 2 times the squared distance from `anchor`, the weights as sent."""

    def proximal_gradient(params: Params, batch: Batch) -> Update:
        return {name: g + pull * (params[name] - anchor[name]) for name, g in gradient(params, batch).items()}

    return proximal_gradient


def nesterov(gradient: GradientFn, momentum: float, weight_decay: float) -> GradientFn:
    """Directions of SGD with Nesterov's momentum, as in torch; the weight decay comes before the momentum."""
    velocity: dict[str, Tensor] = {}

    def direction_of(params: Params, batch: Batch) -> Update:
        decayed = {name: g + weight_decay * params[name] for name, g in gradient(params, batch).items()}
        for name, g in decayed.items():
            velocity[name] = momentum * velocity[name] + g if name in velocity else g
        return {name: g + momentum * velocity[name] for name, g in decayed.items()}

    return direction_of


def local_optimizer(sent: Params, training: LocalTraining, federation: Federation) -> tuple[Around, LocalTraining]:
    """What goes around a client's gradient, and the training that is left: together the federation's local steps."""
    local = federation.method != "fedsgd"
    pull = federation.proximal if federation.method == "fedprox" else 0.0
    momentum = training.momentum if local and federation.nesterov else 0.0
    decay = training.weight_decay

    def around(gradient: GradientFn) -> GradientFn:
        if pull:
            gradient = fedprox(gradient, sent, pull)
        return nesterov(gradient, momentum, decay) if momentum else gradient

    return around, replace(training, momentum=0.0, weight_decay=0.0) if momentum else training
