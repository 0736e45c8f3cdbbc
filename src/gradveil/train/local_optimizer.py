"""What a federation adds to a client's steps: the pull of FedProx (Li et al., 2020) and Nesterov's momentum.

Both go around whatever the defense makes of the gradient, so `local_steps` runs them without knowing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator, Tensor, nn

from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.core.types import Batch, GradientFn, Params, Update
from gradveil.train.settings import Federation


@dataclass(frozen=True, kw_only=True)
class Rule(Defense):
    """A defense whose gradient is pulled back to `anchor`, the weights as sent, and carries Nesterov's momentum."""

    defense: Defense
    anchor: Params
    proximal: float = 0.0
    nesterov: float = 0.0  # the momentum, where it is Nesterov's
    weight_decay: float = 0.0  # comes before the momentum, so it is here where the momentum is

    def batch(self, batch: Batch, rng: Generator) -> Batch:
        return self.defense.batch(batch, rng)

    def gradient(self, compute: GradientFn, model: nn.Module, rng: Generator) -> GradientFn:
        inner = self.defense.gradient(compute, model, rng)
        velocity: dict[str, Tensor] = {}

        def ruled(params: Params, batch: Batch) -> Update:
            direction = self.pulled(inner(params, batch), params)
            if not self.nesterov:
                return direction
            direction = {name: g + self.weight_decay * params[name] for name, g in direction.items()}
            for name, g in direction.items():
                velocity[name] = self.nesterov * velocity[name] + g if name in velocity else g
            return {name: g + self.nesterov * velocity[name] for name, g in direction.items()}

        return ruled

    def pulled(self, direction: Update, params: Params) -> Update:
        if not self.proximal:
            return direction
        return {name: g + self.proximal * (params[name] - self.anchor[name]) for name, g in direction.items()}


def ruled(
    defense: Defense, params: Params, training: LocalTraining, federation: Federation
) -> tuple[Defense, LocalTraining]:
    """Defense and training for `local_steps`, so that together they make the federation's steps."""
    pull = federation.proximal if federation.method == "fedprox" else 0.0
    if federation.method == "fedsgd" or not (pull or federation.nesterov):
        return defense, training
    momentum = training.momentum if federation.nesterov else 0.0
    rule = Rule(defense=defense, anchor=params, proximal=pull, nesterov=momentum, weight_decay=training.weight_decay)
    return rule, replace(training, momentum=0.0, weight_decay=0.0) if momentum else training
