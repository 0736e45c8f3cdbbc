"""What a candidate would make of an update: every candidate in the victim's place, in chunks, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from gradveil.core.own_loss import OwnLoss
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update
from gradveil.lineup.candidates import with_label
from gradveil.lineup.client import Client, Place, mean_of_updates, put_in

CHUNK_BYTES = 400_000_000  # of the updates of one chunk
MOST_TOGETHER = 64
CLOSE = 1e-3  # of its length: two ways to compute one update agree


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that is known beside the picture: the members' pictures as the guesser feeds them, and what is drawn.

    columns: the received updates for which this is so, by their number. seed: of draws that the guesser is granted.
    """

    place: Place
    columns: tuple[int, ...]
    members: tuple[Batch, ...]
    seed: Seed | None = None

    def at(self, seed: Seed | None) -> Setting:
        """The same with these draws."""
        return self if seed is self.seed else replace(self, seed=seed)

    @property
    def own(self) -> Batch:
        return self.members[self.place.member]

    @property
    def name(self) -> str:
        return self.place.names[self.place.member]

    @property
    def alone(self) -> bool:
        """Whether the update speaks of this one picture only, so that it is the same for every place with its label."""
        return len(self.members) == 1 and len(self.own.images) == 1 and self.seed is None


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Updates of candidates, by a client without its last draws.

    by_sum: whether an update is the mean over the examples of what each alone makes, before it is sent. Then every
    candidate is computed once for each label, whatever the rest of the batch is.
    """

    client: Client
    by_sum: bool

    @classmethod
    def of(cls, client: Client, setting: Setting) -> Maker:
        """Which way it is, is tried on the setting's own pictures."""
        maker = cls(client=client, by_sum=True)
        return maker if _may_be_sum(client, setting) and maker._agrees(setting) else cls(client=client, by_sum=False)

    def _agrees(self, setting: Setting) -> bool:
        """Whether both ways give the same update for the picture that is there."""
        own = with_label(setting.place.picture.unsqueeze(0), setting.place.label)
        whole = Maker(client=self.client, by_sum=False)
        one, other = (maker.make(setting, maker.start(setting, own)) for maker in (self, whole))
        off = sum(float((one[name] - other[name]).double().square().sum()) for name in one)
        return off <= CLOSE**2 * sum(float(u.double().square().sum()) for u in other.values())

    def chunks(self, count: int) -> Iterator[slice]:
        """Of so many candidates; by the size of the model alone, so that nothing depends on the machine."""
        size = 4 * sum(p.numel() for p in self.client.model.parameters())
        step = max(1, min(MOST_TOGETHER, CHUNK_BYTES // max(size, 1)))
        return (slice(first, min(first + step, count)) for first in range(0, count, step))

    def start(self, setting: Setting, candidates: Batch) -> Any:
        """What all places share whose candidates have these labels: of each alone, its update before it is sent."""
        if not self.by_sum:
            return candidates

        def alone(one: Batch) -> Update:
            return self.client.before_sending(Batch(*(x.unsqueeze(0) for x in one)), setting.seed, setting.name)

        return for_each(alone, candidates)

    def make(self, setting: Setting, started: Any) -> Update:
        """The updates that the server would get, each [candidate, ...]."""
        finish = partial(self._finish, self._others(setting))
        if not self.by_sum:
            return for_each(lambda one: finish(self._whole(setting, one)), started)
        count = len(setting.own.images)
        if count > 1:
            rest = self._rest(setting)
            started = {name: rest[name] + u / count for name, u in started.items()}
        if len(setting.members) == 1 and not self.client.defense.acts_at("update"):
            return started
        return for_each(finish, started)

    def play(self, setting: Setting, one: Batch) -> Update:
        """The update of one candidate, a picture and its label, computed as a client computes it."""
        return self._finish(self._others(setting), self._whole(setting, one))

    def _whole(self, setting: Setting, one: Batch) -> Update:
        batch = put_in(setting.own, setting.place.row, one)
        return self.client.before_sending(batch, setting.seed, setting.name)

    def _rest(self, setting: Setting) -> Update:
        """The others' share of the mean over the batch."""
        row, count = setting.place.row, len(setting.own.images)
        others = Batch(*(torch.cat([x[:row], x[row + 1 :]]) for x in setting.own))
        update = self.client.before_sending(others, setting.seed, setting.name)
        return {name: u * (count - 1) / count for name, u in update.items()}

    def _others(self, setting: Setting) -> list[Update]:
        """What the other members send."""
        found = []
        for number, batch in enumerate(setting.members):
            if number != setting.place.member:
                update = self.client.before_sending(batch, setting.seed, setting.place.names[number])
                found.append(self.client.defense.update(update, Seed().rng()))
        return found

    def _finish(self, others: Sequence[Update], update: Update) -> Update:
        sent = self.client.defense.update(update, Seed().rng())
        return mean_of_updates([sent, *others]) if others else sent


def _may_be_sum(client: Client, setting: Setting) -> bool:
    """One step on all pictures, each normalized by itself, and no draws that would be others for one picture alone."""
    training, count = client.training, len(setting.own.images)
    if not training.is_linear or training.class_weights:  # a norm, a weight or a sign is of the whole batch
        return False
    if isinstance(training.loss, OwnLoss) and count > 1:  # of a batch it may be anything, such as one Dice of all
        return False
    whole = training.batch_size is None or training.batch_size >= count
    return training.steps == 1 and training.batchnorm == "eval" and whole and setting.seed is None


def for_each(make: Callable[[Any], Update], given: Any) -> dict[str, Tensor]:
    """Of every row of what is given, a batch or an update: at once, or one by one where that cannot be."""
    try:
        return dict(vmap(make, randomness="same")(given))
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        each = [make(row) for row in _rows(given)]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def _rows(given: Any) -> Iterator[Any]:
    if isinstance(given, Batch):
        yield from map(Batch, *given)
    else:
        yield from ({name: u[row] for name, u in given.items()} for row in range(len(next(iter(given.values())))))
