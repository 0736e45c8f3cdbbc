"""The one forward model. The simulated client, the Flower client and the attacker all run `local_update`.

for each local step:                                    stage
    step   <- the next minibatch of Defense.data's data   data      (once a round, before this function)
    step   <- Defense.batch(step)                         batch     (every step)
    grad   <- Defense.gradient(loss gradient)(w, step)    gradient  (around the gradient)
    update <- update + rate * grad, or as the local optimizer goes (`gradveil.core.local_optimizer`)
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

from gradveil.core.augment import crop_and_flip
from gradveil.core.dropout import masks_of
from gradveil.core.errors import ConfigError
from gradveil.core.formula import use_formulas
from gradveil.core.local_optimizer import Carry, start_of, take_step
from gradveil.core.local_training import PRECISIONS, LocalTraining, Loss
from gradveil.core.own_loss import OwnLoss
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, GradientFn, Params, Update

if TYPE_CHECKING:
    from gradveil.core.defense import Defense

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """The trainable parameters by name, detached: what an update speaks about."""
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


def loss_of(logits: Tensor, labels: Tensor, kind: Loss | OwnLoss) -> Tensor:
    """Mean loss over the examples, for soft labels [example, class] or, of each pixel, [example, class, ...]."""
    if isinstance(kind, OwnLoss):
        return kind(logits, labels)
    if kind == "binary-cross-entropy":
        return F.binary_cross_entropy_with_logits(logits, labels)
    return F.cross_entropy(logits, labels)


def local_loss(logits: Tensor, labels: Tensor, training: LocalTraining) -> Tensor:
    """What a client descends: `loss_of`, with the label smoothing and the class weights of its training.

    As in torch for labels that are classes: a batch is divided by the weights of its labels, smoothed or not.
    """
    if training.has_plain_loss:
        return loss_of(logits, labels, training.loss)
    smooth = training.label_smoothing
    target = (1 - smooth) * labels + smooth * labels.sum(1, keepdim=True) / labels.shape[1]
    if not training.class_weights:
        return F.cross_entropy(logits, target)
    weights = logits.new_tensor(training.class_weights)
    if len(weights) != logits.shape[1]:
        raise ConfigError(
            f"must be {logits.shape[1]} numbers, one for each class, got {len(weights)}", key="class_weights"
        )
    weights = weights.view(-1, *(1,) * (logits.dim() - 2))
    return -(weights * target * logits.log_softmax(1)).sum() / (weights * labels).sum()


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
    """One local step: the weights it started from, the batch it was fed, the update so far, and the rows of the data
    that the batch was made of."""

    params: Params
    batch: Batch
    update: Update
    rows: slice | Tensor


def gradient_of(model: nn.Module, training: LocalTraining) -> GradientFn:
    """The gradient of the loss over a batch, by the parameters."""

    def loss(params: Params, batch: Batch) -> Tensor:
        return local_loss(functional_call(model, dict(params), (batch.images,)), batch.labels, training)

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
    own = own_draws(rng) if training.draws else None
    gradient = around(defense.gradient(gradient_of(model, training), model, rng))
    return take_steps(params, data, training, lambda batch: defense.batch(batch, rng), gradient, own)


def own_draws(rng: Generator) -> Seed:
    """Of the order of the pictures and of masks: one number of the stream that the defense draws from too."""
    return Seed(int(torch.randint(2**62, (), generator=rng, device=rng.device)))


def take_steps(
    params: Params,
    data: Batch,
    training: LocalTraining,
    feed: Callable[[Batch], Batch],
    gradient: GradientFn,
    own: Seed | None = None,
) -> Iterator[Step]:
    """The local optimizer from `params`: `feed` makes what is fed of each minibatch of the data.

    own: of what the client draws itself; without it pictures are fed as they are, in the given order, without dropout.
    """
    count = len(data.images)
    training = training.for_examples(count)
    order = own.at("order").rng() if own is not None else None
    masks = own if training.dropout == "on" else None
    carry: Carry = {}
    for number, rows in enumerate(training.rows(count, order)):
        here = start_of(params, carry)
        batch = feed(augment(Batch(data.images[rows], data.labels[rows]), training, own, number))
        with masks_of(masks, number):
            slope = gradient(here, batch)
        carry = take_step(training, number, carry, here, slope)
        sent = carry["update"] if number + 1 < training.steps else as_precise(carry["update"], training)
        yield Step(here, batch, sent, rows)


def augment(batch: Batch, training: LocalTraining, own: Seed | None, step: int) -> Batch:
    """The batch as the client crops and flips it in a step, masks with their pictures; without a seed as it is."""
    if own is None or training.augment == "none":
        return batch
    masks = batch.labels if batch.labels.shape[-2:] == batch.images.shape[-2:] and batch.labels.dim() > 2 else None
    both = batch.images if masks is None else torch.cat([batch.images, in_planes(masks)], 1)
    both = crop_and_flip(both, own.at("augment", step).rng())
    images, moved = both[:, : batch.images.shape[1]], both[:, batch.images.shape[1] :]
    return Batch(images, batch.labels if masks is None else moved.reshape(masks.shape))


def in_planes(masks: Tensor) -> Tensor:
    """Targets per pixel as pictures [example, plane, height, width]."""
    return masks.flatten(1, -3) if masks.dim() > 3 else masks.unsqueeze(1)


def as_precise(update: Update, training: LocalTraining) -> Update:
    """The update as the client rounds it."""
    if training.update_precision == "float32":
        return update
    return {name: u.to(PRECISIONS[training.update_precision]).to(u.dtype) for name, u in update.items()}


def local_update(
    model: nn.Module, params: Params, data: Batch, training: LocalTraining, defense: Defense, rng: Generator
) -> Update:
    """One client's round: what it sends. The simulated client, the Flower client and the attacker run this."""
    *_, last = local_steps(model, params, data, training, defense, rng)
    return defense.update(last.update, rng)


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
