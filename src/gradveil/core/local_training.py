"""How a client trains in one round, as a value: the simulated client, the replay, Flower and the attacker share it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast, get_args

import torch
from torch import Generator, Tensor

from gradveil.core.errors import ConfigError
from gradveil.core.own_loss import LossFunction, OwnLoss, as_own_loss
from gradveil.core.types import Batch

BatchNorm = Literal["eval", "batch", "batch-shared"]
Loss = Literal["cross-entropy", "binary-cross-entropy"]
LocalOptimizer = Literal["sgd", "adam", "adamw", "rmsprop", "adagrad"]
Schedule = Literal["constant", "step", "cosine"]
Order = Literal["known", "unknown"]
Dropout = Literal["off", "on"]
Augment = Literal["none", "crop-flip"]
UpdatePrecision = Literal["float32", "bf16", "fp16"]
ADAPTIVE_EPSILON, ADAGRAD_EPSILON = 1e-8, 1e-10  # torch's defaults
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FIRST = ("steps", "rate", "batch_size", "momentum", "weight_decay", "batchnorm", "loss")
WITH_MOMENTUM = ("sgd", "rmsprop")


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """One client's round. FedSGD: one step at rate 1; FedAvg: tau steps. Optimizers are those of `torch.optim`.

    `batchnorm`: `eval` normalizes by the model's running statistics, `batch` by the client's own batch (train mode)
    and keeps its statistics to itself, `batch-shared` does the same and sends the updated running statistics along.
    """

    steps: int = 1
    rate: float = 1.0
    batch_size: int | None = None
    momentum: float = 0.0  # of sgd and rmsprop
    weight_decay: float = 0.0  # of adamw apart from the gradient, of the others in it
    batchnorm: BatchNorm = "eval"
    loss: Loss | OwnLoss = "cross-entropy"  # or a function of outputs and targets, see `as_own_loss`
    optimizer: LocalOptimizer = "sgd"
    nesterov: bool = False
    dampening: float = 0.0  # of sgd with momentum
    beta1: float = 0.9  # of adam and adamw
    beta2: float = 0.999
    smoothing: float = 0.99  # of rmsprop, `alpha` in torch
    epsilon: float = 0.0  # of all but sgd; 0: torch's default, 1e-8 or, of adagrad, 1e-10
    epochs: int = 0  # over a client's pictures in the place of `steps`; 0: `steps` counts
    order: Order = "known"  # unknown: shuffled by the client in every epoch
    schedule: Schedule = "constant"  # of the rate, over the steps of one round
    decay_every: int = 1  # steps; of the schedule `step`
    decay_factor: float = 0.1  # of the schedule `step`
    warmup: int = 0  # steps in which the rate rises to its value, in equal parts
    clip_gradients: float = 0.0  # the largest norm of a step's gradient; 0: none
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()  # of the loss, by class; empty: all alike
    dropout: Dropout = "off"  # on: the client draws masks in every step
    augment: Augment = "none"  # what the client draws of its pictures in every step
    update_precision: UpdatePrecision = "float32"  # to which the client rounds its update

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", as_loss(self.loss))
        _check_optimizer(self)
        _check_loss(self)

    def for_examples(self, count: int) -> LocalTraining:
        """The same with its epochs over so many pictures counted as steps.

        >>> LocalTraining(epochs=2, batch_size=4).for_examples(10).steps
        6
        """
        if not self.epochs:
            return self
        return replace(self, epochs=0, steps=self.epochs * math.ceil(count / max(1, self._size(count))))

    def batches(self, data: Batch) -> Iterator[Batch]:
        """The minibatch of each step, epoch after epoch in the given order; the last of an epoch may be smaller."""
        for rows in self.rows(data.images.shape[0]):
            yield Batch(data.images[rows], data.labels[rows])

    def rows(self, count: int, rng: Generator | None = None) -> Iterator[slice | Tensor]:
        """Which of so many pictures each step takes. With a stream, an unknown order is drawn anew in every epoch."""
        size, shuffled = self._size(count), self.order == "unknown" and rng is not None
        order: Tensor | None = None
        for step in range(self.for_examples(count).steps):
            first = step % math.ceil(count / size) * size
            if shuffled and not first:
                order = torch.randperm(count, generator=rng)
            yield slice(first, first + size) if order is None else order[first : first + size]

    def _size(self, count: int) -> int:
        return min(self.batch_size or count, count)

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0.

        >>> [LocalTraining(rate=0.2, warmup=2, steps=3).rate_at(step) for step in range(3)]
        [0.1, 0.2, 0.2]
        """
        rate = self.rate
        if self.schedule == "cosine":
            rate = rate * (1 + math.cos(math.pi * step / self.steps)) / 2
        elif self.schedule == "step":
            rate = rate * self.decay_factor ** (step // self.decay_every)
        return rate * (step + 1) / self.warmup if step < self.warmup else rate

    @property
    def least(self) -> float:
        """What keeps an adaptive optimizer from dividing by zero."""
        return self.epsilon or (ADAGRAD_EPSILON if self.optimizer == "adagrad" else ADAPTIVE_EPSILON)

    @property
    def is_linear(self) -> bool:
        """Whether the update is a sum of gradients, each times a number that is known before."""
        return self.optimizer == "sgd" and not self.clip_gradients

    @property
    def is_plain_step(self) -> bool:
        """Whether a step moves the weights by `rate` times the gradient of the mean loss."""
        moves = self.nesterov or self.schedule != "constant" or self.warmup
        return self.is_linear and not moves and self.has_plain_loss

    @property
    def has_plain_loss(self) -> bool:
        """Whether the loss is the mean over the pictures, for the labels as they are."""
        return not self.label_smoothing and not self.class_weights

    @property
    def shuffles(self) -> bool:
        """Whether which pictures a step takes is the client's secret."""
        return self.order == "unknown" and self.batch_size is not None

    @property
    def feeds_draws(self) -> bool:
        """Whether what a step is fed is the client's secret: which pictures, or what was made of them."""
        return self.shuffles or self.augment != "none"

    @property
    def draws(self) -> bool:
        """Whether the client draws numbers of its own: the order of its pictures, crops or masks."""
        return self.dropout == "on" or self.feeds_draws

    @property
    def secrets(self) -> str:
        """In words, what the client draws.

        >>> LocalTraining(order="unknown", batch_size=2, dropout="on").secrets
        'order, masks'
        """
        each = {"order": self.shuffles, "crops": self.augment != "none", "masks": self.dropout == "on"}
        return ", ".join(name for name, holds in each.items() if holds)

    def as_attacked(self) -> LocalTraining:
        """As an attacker runs it who knows the protocol and none of the client's draws: without dropout and rounding,
        and where the order is unknown with all pictures in every step, which no order changes."""
        known = replace(self, order="known", dropout="off", augment="none", update_precision="float32")
        return known if self.order == "known" else replace(known, batch_size=None)

    def to_table(self) -> dict[str, Any]:
        """What is set, by name; settings that captures and inverters once knew nothing of only where they are used."""
        new = {one.name for one in fields(self) if one.name not in FIRST and getattr(self, one.name) == one.default}
        return {name: value for name, value in asdict(self).items() if value is not None and name not in new}

    @property
    def summary(self) -> str:
        """In words, what makes a step other than plain SGD's.

        >>> LocalTraining(optimizer="adam", warmup=2).summary
        'optimizer adam, warmup 2'
        """
        table = {name: value for name, value in self.to_table().items() if name not in FIRST}
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in table.items())

    @property
    def unknowns(self) -> tuple[str, ...]:
        """What the attacker does not know of a round, and what it does about it."""
        notes = {
            "order not known: every local step is taken on all pictures of the client": self.shuffles,
            "crops and flips not known: the attacker feeds pictures as they are": self.augment != "none",
            "dropout masks not known: the attacker runs without dropout": self.dropout == "on",
            f"the update is rounded to {self.update_precision}: the attacker matches it unrounded": (
                self.update_precision != "float32"
            ),
        }
        return tuple(note for note, holds in notes.items() if holds)


def as_loss(loss: str | LossFunction) -> Loss | OwnLoss:
    """One of the built-in losses, or one of the client's own with a name."""
    if isinstance(loss, str) and loss in get_args(Loss):
        return cast(Loss, loss)
    return as_own_loss(loss)


def _check_optimizer(training: LocalTraining) -> None:
    if training.momentum and training.optimizer not in WITH_MOMENTUM:
        raise ConfigError(f"{training.optimizer} has none, leave it out or use `beta1`", key="momentum")
    for name in ("nesterov", "dampening"):
        if getattr(training, name) and not (training.optimizer == "sgd" and training.momentum):
            raise ConfigError("needs `optimizer = sgd` and a momentum above 0, leave it out", key=name)
    if training.nesterov and training.dampening:
        raise ConfigError("goes without dampening, leave one of them out", key="nesterov")


def _check_loss(training: LocalTraining) -> None:
    for name in ("label_smoothing", "class_weights"):
        if getattr(training, name) and training.loss != "cross-entropy":
            raise ConfigError("needs `loss = cross-entropy`, leave it out", key=name)
    if any(not 0 <= weight < math.inf for weight in training.class_weights):
        raise ConfigError("must be numbers of 0 or more, one for each class", key="class_weights")
