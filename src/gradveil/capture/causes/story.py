"""A client's round as it may have been, and how far it leads from the update that came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from gradveil.audit.update_match import length
from gradveil.capture.causes.draws import compare_with_draws
from gradveil.capture.causes.rounding import Undecided, drop
from gradveil.capture.format import Normalization
from gradveil.capture.orders import count_orders, every_order_is_tried, list_orders
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update

Form = Literal["update", "negative", "weights"]
REMEMBERED = 6  # updates that were played, the last ones
SAMPLED, ONE_SIZE = 1_000_000, 0.35  # numbers; of the largest ones, what their mean has to be
DRAWN = 8  # rounds that are played with draws of their own
FEW_ORDERS = 24  # that are played for one story
LIKE_A_DRAW = 0.15  # of the distance between draws: how much further out the update may be and look like one more
WIDE = 0.1  # of that distance: what counts as left, since draws that differ much explain much


class Left(NamedTuple):
    """Of an update what a story does not explain, relative to its length."""

    error: float
    is_like_a_draw: bool = False  # as far from the mean of rounds with draws of our own as they are


@dataclass(frozen=True, kw_only=True)
class Story:
    """What is assumed of one round: the model, what was fed, how it was trained, and what was sent of it."""

    model: nn.Module
    batch: Batch
    training: LocalTraining
    form: Form = "update"
    factor: float = 1.0
    gain: tuple[float, ...] = ()  # by channel, what the pictures are multiplied with before they are fed; empty: 1
    shift: tuple[float, ...] = ()  # and then moved by

    @property
    def fed(self) -> Batch:
        """The pictures as the model gets them."""
        if not self.gain:
            return self.batch
        gain, shift = (self.batch.images.new_tensor(one).view(-1, 1, 1) for one in (self.gain, self.shift))
        return Batch(self.batch.images * gain + shift, self.batch.labels)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What came from the client, and what else is known."""

    update: Update
    weights: Mapping[str, Tensor]
    tolerance: float
    constants: Normalization | None = None  # of the data
    views: Callable[[], Iterable[tuple[str, Tensor]]] = tuple  # the same pictures under other resizes, and their names
    undecided: Callable[[], Undecided] = dict  # what rounding decides under an adaptive optimizer
    until: float = float("inf")  # of `time.monotonic`
    played: list[tuple[Story, Update]] = field(default_factory=list, repr=False)

    @cached_property
    def looks_adaptive(self) -> bool:
        """Whether the update's numbers are of about one size, as after Adam; those of a gradient are of many."""
        sizes = torch.cat([u.flatten().abs() for u in self.update.values()])
        sizes = sizes[sizes > 0][:SAMPLED]
        return len(sizes) > 0 and bool(sizes.mean() > ONE_SIZE * sizes.quantile(0.999))

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.until

    def play(self, story: Story) -> Update:
        """The update of the story, without draws of the client's own and before `factor`."""
        for known, update in self.played:
            if _is_same(known, story):
                return update
        update = train_once(story.model, story.fed, story.training)
        self.played.append((story, update))
        del self.played[:-REMEMBERED]
        return update

    def error(self, story: Story) -> float:
        """What is left of the update that the story does not explain, relative to its length."""
        own = self.play(story)
        scaled = own if story.factor == 1.0 else {name: story.factor * u for name, u in own.items()}
        is_adaptive = story.training.optimizer != "sgd"
        return relative_error(self.received(story.form), scaled, self.undecided() if is_adaptive else {})

    def measure(self, story: Story) -> Left:
        """What is left; of a client that draws, how much further it is than draws are apart."""
        if not story.training.draws:
            return Left(self.error(story))
        training, batch = story.training, story.batch
        orders = list(list_orders(training, len(batch.images))) if _has_few_orders(story) else []
        known = replace(story, training=replace(training, order="known"))
        each = (replace(known, batch=Batch(batch.images[rows], batch.labels[rows])) for rows in orders)
        return Left(min(self.error(one) for one in each)) if orders else self.left_by_draws(story)

    def received(self, form: Form) -> Update:
        """What came, read as an update."""
        if form == "negative":
            return {name: -u for name, u in self.update.items()}
        if form == "weights":
            return {name: self.weights[name].float() - u for name, u in self.update.items()}
        return self.update

    def factor(self, story: Story) -> float:
        """By which number the story's update is to be multiplied to come nearest."""
        own, update = self.play(story), self.received(story.form)
        product = sum(float((own[name].double() * update[name].double()).sum()) for name in update)
        return product / max(float(length(list(own.values()))) ** 2, 1e-300)

    def left_by_draws(self, story: Story) -> Left:
        """What is left where the client drew masks or an order that nobody knows.

        Rounds with draws of our own lie around their mean; in every tensor the update has to be as far from it as they
        are.
        """
        each = [draw(story, number) for number in range(DRAWN)]
        update = self.received(story.form)
        beyond = spread = 0.0
        for name, one in update.items():
            out, wide = compare_with_draws(one.flatten().double(), [u[name].flatten().double() for u in each])
            beyond, spread = beyond + out**2, spread + wide**2
        beyond, spread = beyond**0.5, spread**0.5
        whole = max(float(length(list(update.values()))), 1e-300)
        return Left((beyond + WIDE * spread) / whole, beyond <= LIKE_A_DRAW * spread)


def _has_few_orders(story: Story) -> bool:
    count = len(story.batch.images)
    return every_order_is_tried(story.training, count) and count_orders(story.training, count) <= FEW_ORDERS


def train_once(model: nn.Module, batch: Batch, training: LocalTraining, defense: Defense | None = None) -> Update:
    """As far as it is known: of an order that nobody knows, every step on all pictures."""
    training = training.for_examples(len(batch.images))
    training = replace(training.as_attacked(), update_precision=training.update_precision)
    client = in_client_mode(model, training)
    return local_update(client, parameters_of(client), batch, training, defense or Defense(), Seed().rng())


def draw(story: Story, number: int) -> Update:
    """One round with the client's own draws."""
    client = in_client_mode(story.model, story.training)
    update = local_update(
        client, parameters_of(client), story.fed, story.training, Defense(), Seed().at("replay", number).rng()
    )
    return {name: story.factor * u for name, u in update.items()}


def relative_error(update: Update, other: Update, undecided: Undecided | None = None) -> float:
    if undecided:
        update, other = drop(update, undecided), drop(other, undecided)
    return _distance(update, other) / max(float(length(list(update.values()))), 1e-300)


def _distance(one: Update, other: Update) -> float:
    return float(length([one[name].double() - other[name].double() for name in one]))


def _is_same(one: Story, other: Story) -> bool:
    return (
        one.model is other.model
        and (one.training, one.gain, one.shift) == (other.training, other.gain, other.shift)
        and one.batch.images is other.batch.images
        and one.batch.labels is other.batch.labels
    )


def flatten(update: Update) -> Tensor:
    return torch.cat([update[name].flatten().double() for name in sorted(update)])
