"""Several local steps in which the weights of linear layers stay where they are.

The gradient of such a layer is a sum of outer products, for each picture what comes in times the slope of what goes
out; so after some steps its weights are those of the model less a few outer products. What comes in is multiplied by
both in turn: no trial has a matrix of its own, and all of them go on sharing the model's. The change is written out
once, at the end, for the defense and the distance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.overrides import TorchFunctionMode

from gradveil.core.client import local_update, loss_of
from gradveil.core.defense import Defense
from gradveil.core.local_optimizer import Carry
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed, uniform
from gradveil.core.types import Batch, Params
from gradveil.engine.adjoint import LocalRound
from gradveil.engine.distance import Unmatched

ALIKE = 1e-2  # of a gradient's length: more than rounding, TF32 too, and less than a missing share
WORTH = 2  # a layer has so many times the numbers of its outer products, or it is moved like all others


class Unmoved(TorchFunctionMode):
    """Linear layers less the outer products of `carry`. `probes` are zeros: their slopes are those of what goes out."""

    def __init__(self, weights: Params, probes: Params, carry: Carry) -> None:
        super().__init__()
        self.names = {id(w): name for name, w in weights.items()}
        self.probes, self.carry = probes, carry
        self.inputs: dict[str, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = self.names.get(id(args[1])) if func is F.linear and len(args) > 1 and args[0].dim() == 2 else None
        return made if name is None else self.less_what_it_moved(name, args[0], made)

    def less_what_it_moved(self, name: str, x: Tensor, made: Tensor) -> Tensor:
        self.inputs[name] = x
        if self.carry:
            made = made - (x @ self.carry["in"][name].T) @ self.carry["out"][name]
        return made + self.probes[name]


@dataclass(frozen=True)
class OuterRound(LocalRound):
    """A round whose steps know the weights called `outer` by their outer products, `out` and `in` of the carry."""

    outer: tuple[str, ...] = ()

    def after(self, place: int, carry: Carry, images: Tensor, labels: Tensor) -> Carry:
        rate, before = self.training.rate, carry.get("update", {})
        here = {n: p - before[n] if before else p for n, p in self.params.items() if n not in self.outer}
        *_, raw = replace(self.training, steps=place + 1).batches(Batch(images, labels))
        slopes, gone, came = self.gradient(here, carry, self.defense.batch(raw, self.rng))
        update = {n: before[n] + rate * g if before else rate * g for n, g in slopes.items()}
        return {
            "update": update,
            "out": below(carry.get("out"), {n: rate * g for n, g in gone.items()}),
            "in": below(carry.get("in"), came),
        }

    def gradient(self, here: Params, carry: Carry, batch: Batch) -> tuple[Params, Params, Params]:
        """By the weights that move, by what goes out of the others, and what came into those."""
        still = {name: self.params[name] for name in self.outer}
        probes = {name: w.new_zeros(len(batch.images), len(w)) for name, w in still.items()}

        def loss(here: Params, probes: Params) -> tuple[Tensor, dict[str, Tensor]]:
            with Unmoved(still, probes, carry) as layers:
                logits = functional_call(self.model, {**still, **here}, (batch.images,))
            return loss_of(logits, batch.labels, self.training.loss), layers.inputs

        (slopes, gone), came = grad(loss, argnums=(0, 1), has_aux=True)(here, probes)
        return slopes, gone, came

    def end(self, carry: Carry, images: Tensor, labels: Tensor) -> Tensor:
        last = self.after(self.training.steps - 1, carry, images, labels)
        written = {name: last["out"][name].T @ last["in"][name] for name in self.outer}
        sent = self.defense.update({name: {**last["update"], **written}[name] for name in self.params}, self.rng)
        return self.distance(sent, {name: u for name, u in self.target.items() if name in sent})


def below(above: Params | None, more: Params) -> dict[str, Tensor]:
    return dict(more) if above is None else {name: torch.cat([above[name], x]) for name, x in more.items()}


def outer_layers(model: nn.Module, params: Params, seen: Observation) -> tuple[str, ...]:
    """The weights for which outer products are fewer numbers and, tried on two pictures, tell the whole gradient."""
    training = seen.training
    if training.steps == 1 or training.momentum or training.weight_decay or not training.is_plain_step:
        return ()
    rows = training.steps * min(training.batch_size or seen.examples, seen.examples)
    large = {f"{name}.weight": m.weight for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    large = {n: w for n, w in large.items() if n in params and WORTH * rows * sum(w.shape) < w.numel()}
    return products_of_updates(model, params, seen, tuple(large)) if large else ()


def products_of_updates(model: nn.Module, params: Params, seen: Observation, names: tuple[str, ...]) -> tuple[str, ...]:
    """A layer whose rows are no pictures, that is used twice or whose weights are used elsewhere is left out."""
    like = next(iter(params.values()))
    rng = Seed().rng()
    batch = Batch(uniform((2, *seen.shape), rng, like), seen.target.draw(rng, like, 2))
    training = LocalTraining(loss=seen.training.loss)
    probed = OuterRound(model, params, training, Defense(), Unmatched(), {}, names)
    _, gone, came = probed.gradient({n: p for n, p in params.items() if n not in names}, {}, batch)
    whole = local_update(model, params, batch, training, Defense(), Seed().rng())
    return tuple(name for name in names if name in came and alike(gone[name].T @ came[name], whole[name]))


def alike(product: Tensor, whole: Tensor) -> bool:
    """Never where there is no gradient, as behind a head of zeros: nothing was tried then."""
    return bool((product - whole).norm() < ALIKE * whole.norm())
