"""A plain trainer with the recipe of the ATS code: SGD with Nesterov momentum, three tenfold falls, crops and flips.

Everything random is drawn on the CPU, once an epoch, and moved; the batches of an epoch then run without waiting for
the device. Differs from the recipe: the rate falls at 3/8, 5/8 and 7/8 of the steps, theirs at the epochs before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from gradveil.core.errors import ConfigError
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update
from gradveil.transforms.pipeline import CropAndFlip
from gradveil.transforms.policy import Draw, Policy

FALLS = (3 / 8, 5 / 8, 7 / 8)  # of all steps
AT_ONCE = 512  # pictures that are classified at once


def fit(
    model: nn.Module,
    data: Batch,
    *,
    epochs: int,
    rate: float = 0.1,
    batch_size: int = 128,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    augment: bool = True,
    policy: Policy | None = None,
    feed: Callable[[Batch, Generator], Batch] | None = None,
    send: Callable[[Update, Generator], Update] | None = None,
    seed: int = 0,
    device: str = "cpu",
    bf16: bool = False,
    on_epoch: Callable[[int, Tensor], None] | None = None,
) -> nn.Module:
    """Train the model in place, on pictures [n, c, h, w] with soft labels [n, class]; it ends in eval mode.

    A policy is drawn anew for every picture and epoch, after the crop. Of an epoch the last batch is left out if it is
    not full. `feed` changes what a batch is, `send` what its gradient is: the stages `data` and `update` of a defense,
    each batch being a client's round. `on_epoch` gets the epochs behind us and the last batch's loss, which still lies
    on the device.
    """
    if epochs < 1 or batch_size < 1 or not len(data.images):
        raise ConfigError(
            f"pictures, epochs and batch_size must be 1 or more, got {len(data.images)}, {epochs}, {batch_size}"
        )
    layout = torch.channels_last if bf16 else torch.contiguous_format
    model = model.to(device, memory_format=layout).train()  # type: ignore[call-overload]
    images, labels = (x.to(device, torch.float32) for x in data)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0, weight_decay=weight_decay
    )
    size = min(batch_size, len(images))
    each = len(images) // size
    for epoch in range(epochs):
        stream = Seed(seed).at("fit", epoch)
        for place, (fed, labeled) in enumerate(_batches(images, labels, size, augment, policy, stream)):
            _set_rate(optimizer, rate, (epoch * each + place) / (epochs * each))
            if feed is not None:
                fed, labeled = feed(Batch(fed, labeled), stream.at("feed", place).rng())
            with _autocast(bf16, device):
                logits = model(fed.contiguous(memory_format=layout))
            loss = F.cross_entropy(logits.float(), labeled)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if send is not None:
                _replace_gradients(model, send, stream.at("send", place).rng())
            optimizer.step()
        if on_epoch is not None:
            on_epoch(epoch + 1, loss.detach())
    return model.to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]


def _batches(
    images: Tensor, labels: Tensor, size: int, augment: bool, policy: Policy | None, seed: Seed
) -> Iterator[tuple[Tensor, Tensor]]:
    """One epoch, in a new order. What is drawn belongs to the picture's place in the epoch."""
    count, where = len(images), images.device
    order = torch.randperm(count, generator=seed.at("order").rng()).to(where)
    framed = CropAndFlip(*(x.to(where) for x in CropAndFlip.draw(count, seed.at("crop").rng()))) if augment else None
    drawn = None if policy is None else policy.draw(count, seed.at("policy").rng())
    for first in range(0, count - size + 1, size):
        here = slice(first, first + size)
        fed = images[order[here]]
        if framed is not None:
            fed = CropAndFlip(*(x[here] for x in framed)).apply(fed)
        if policy is not None and drawn is not None:
            fed = policy.apply(fed, Draw(drawn.choice[here], drawn.signs[here]))
        yield fed, labels[order[here]]


def _set_rate(optimizer: torch.optim.Optimizer, rate: float, progress: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * 0.1 ** sum(progress >= fall for fall in FALLS)


def _replace_gradients(model: nn.Module, send: Callable[[Update, Generator], Update], rng: Generator) -> None:
    params = dict(model.named_parameters())
    sent = send({name: p.grad for name, p in params.items() if p.grad is not None}, rng)
    for name, gradient in sent.items():
        params[name].grad = gradient


def _autocast(bf16: bool, device: str) -> AbstractContextManager:
    return torch.autocast(torch.device(device).type, torch.bfloat16) if bf16 else nullcontext()


@torch.no_grad()
def accuracy(model: nn.Module, data: Batch) -> float:
    """The share of pictures that the model, in eval mode, puts into their class."""
    where, was_training = next(model.parameters()).device, model.training
    model.eval()
    right = torch.zeros((), device=where)
    for images, labels in zip(data.images.split(AT_ONCE), data.labels.split(AT_ONCE), strict=True):
        right += (model(images.to(where)).argmax(1) == labels.to(where).argmax(1)).sum()
    model.train(was_training)
    return right.item() / len(data.images)
