"""The one forward model. The simulated client, the Flower client and the attacker all run `local_update`.

for each local step:                                    stage
    step   <- the next minibatch of Defense.data's data   data      (once a round, before this function)
    step   <- Defense.batch(step)                         batch     (every step)
    grad   <- Defense.gradient(loss gradient)(w, step)    gradient  (around the gradient)
    update <- update + rate * grad
send Defense.update(update)                               update    (last)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.func import functional_call

from gradveil.core.formula import use_formulas
from gradveil.core.scenario import LocalTraining, Loss
from gradveil.core.types import Batch, GradientFn, Params, Update

if TYPE_CHECKING:
    from gradveil.core.defense import Defense

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters by name, detached: what an update speaks about."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def loss_of(logits: Tensor, labels: Tensor, kind: Loss) -> Tensor:
    """Mean loss over the examples, for soft labels."""
    if kind == "binary-cross-entropy":
        return F.binary_cross_entropy_with_logits(logits, labels)
    return F.cross_entropy(logits, labels)


def in_client_mode(model: nn.Module, training: LocalTraining) -> nn.Module:
    """A copy of the model that normalizes as the scenario says.

    Batch statistics are taken without touching the running ones: torch updates those in place, which `torch.func`
    refuses, and a server that wants them is served by `batch_statistics`. Attention runs by its formula, so that the
    client and whoever replays or attacks it run the same forward, which the attacker can differentiate twice.
    """
    model = copy.deepcopy(model).eval()
    use_formulas(model)
    if training.batchnorm != "eval":
        for layer in model.modules():
            if isinstance(layer, BATCH_NORMS):
                layer.track_running_stats = False
                layer.running_mean = layer.running_var = None
    return model


class Step(NamedTuple):
    """One local step: the weights it started from, the batch it was fed, and the update so far."""

    params: Params
    batch: Batch
    update: Update


def gradient_of(model: nn.Module, kind: Loss) -> GradientFn:
    """The gradient of the mean loss over a batch, by the parameters."""

    def loss(params: Params, batch: Batch) -> Tensor:
        return loss_of(functional_call(model, dict(params), (batch.images,)), batch.labels, kind)

    return torch.func.grad(loss)


def local_steps(
    model: nn.Module,
    params: Params,
    data: Batch,
    training: LocalTraining,
    defense: Defense,
    rng: Generator,
    around: Callable[[GradientFn], GradientFn] = lambda gradient: gradient,
) -> Iterator[Step]:
    """The steps of one round, before `Defense.update`. `model` is in client mode (see `in_client_mode`).

    `around` is what the training itself adds to the gradient that the defense sends, such as the pull of FedProx.
    """
    gradient = around(defense.gradient(gradient_of(model, training.loss), model, rng))
    return take_steps(params, data, training, lambda batch: defense.batch(batch, rng), gradient)


def take_steps(
    params: Params, data: Batch, training: LocalTraining, feed: Callable[[Batch], Batch], gradient: GradientFn
) -> Iterator[Step]:
    """Gradient descent with momentum from `params`: `feed` makes what is fed of each minibatch of the data."""
    update: Update | None = None
    velocity: Update | None = None
    for raw in training.batches(data):
        here = params if update is None else {name: params[name] - update[name] for name in params}
        batch = feed(raw)
        direction = gradient(here, batch)
        if training.weight_decay:
            direction = {name: g + training.weight_decay * here[name] for name, g in direction.items()}
        if training.momentum:
            direction = velocity = _scaled_sum(velocity, training.momentum, direction)
        # accumulate rather than subtract: w0 - (w0 - g) loses digits that closed-form attacks would see
        update = _add(update, training.rate, direction)
        yield Step(here, batch, update)


def local_update(
    model: nn.Module, params: Params, data: Batch, training: LocalTraining, defense: Defense, rng: Generator
) -> Update:
    """One client's round: what it sends. The simulated client, the Flower client and the attacker run this."""
    *_, last = local_steps(model, params, data, training, defense, rng)
    return defense.update(last.update, rng)


def _add(update: Update | None, rate: float, direction: Update) -> Update:
    scaled = direction if rate == 1.0 else {name: rate * g for name, g in direction.items()}
    return scaled if update is None else {name: update[name] + scaled[name] for name in scaled}


def _scaled_sum(velocity: Update | None, momentum: float, direction: Update) -> Update:
    if velocity is None:
        return direction
    return {name: momentum * velocity[name] + g for name, g in direction.items()}


def batch_statistics(model: nn.Module, params: Params, images: Tensor) -> dict[str, Tensor]:
    """Mean and variance, as torch would add them to the running ones, of every normalization layer's input."""
    seen: dict[str, Tensor] = {}

    def keep(name: str):
        def hook(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            spatial = [d for d in range(inputs[0].dim()) if d != 1]
            seen[f"{name}.mean"] = inputs[0].mean(spatial)
            seen[f"{name}.var"] = inputs[0].var(spatial, unbiased=True)

        return hook

    hooks = [
        layer.register_forward_pre_hook(keep(name))
        for name, layer in model.named_modules()
        if isinstance(layer, BATCH_NORMS)
    ]
    try:
        functional_call(model, dict(params), (images,))
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def newest_share(layer: nn.modules.batchnorm._NormBase, steps: int) -> float:
    """How much of the running statistics the next batch becomes, `steps` after the model was sent."""
    if layer.momentum is not None:
        return layer.momentum
    tracked = 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)
    return 1 / (tracked + steps + 1)  # torch's cumulative average
