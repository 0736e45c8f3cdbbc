"""How likely every candidate is to have made the updates that were received, streamed: never all updates at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gradveil.core.knowledge import View
from gradveil.core.law import Law, Normal, squared_distances
from gradveil.core.progress import leave_if_stopped, tick
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update
from gradveil.lineup.candidates import Gallery, with_label
from gradveil.lineup.make import Maker, Setting

DRAWS = 8  # simulated, where the likelihood of a draw is not known
POOLED = 8  # candidates from whose simulated updates the spread of the draws is read
FLOOR = 1e-3  # of a tensor's root mean square: the least spread


@dataclass(frozen=True, kw_only=True)
class Question:
    """One place, the updates that were received of it, and the candidates beside the gallery.

    columns: updates received, each [column, ...]. own: pictures [n, ...] that only this place has: its own and near
    copies. answered: the first so many columns come from one of the candidates, the others are a control.
    """

    settings: tuple[Setting, ...]
    columns: Update
    own: Tensor
    answered: int


@dataclass(frozen=True, kw_only=True)
class Guesser:
    """The best guess there is: by the law of what the defense draws last, over all that it may have drawn before.

    views: what may have happened to the picture. draws: how often the rest is simulated; 0: nothing is left to draw.
    own_labels: whether every candidate of the gallery comes with its own label, and not with the picture's.
    """

    maker: Maker
    law: Law
    views: tuple[View, ...] = ()
    draws: int = 0
    own_labels: bool = False

    def with_own_labels(self) -> Guesser:
        return replace(self, own_labels=True)

    def score(self, questions: Sequence[Question], gallery: Gallery) -> list[Tensor]:
        """For each question log-likelihoods [column, candidate]: of the gallery, then of its own pictures."""
        size = len(gallery.images)
        found = [_Scores(q, size) for q in questions]
        for group in [found] if self.own_labels else by_label(found):
            for part in self.maker.chunks(size):
                self._score_chunk(group, gallery.take(part, group[0].label, self.own_labels), part.start)
                leave_if_stopped()
                tick(part.stop, size)
            for one in group:
                for part in self.maker.chunks(len(one.question.own)):
                    own = with_label(one.question.own[part], one.label)
                    self._score_chunk([one], own, size + part.start)
        return [one.scores for one in found]

    def _score_chunk(self, group: Sequence[_Scores], candidates: Batch, first: int) -> None:
        ways = list(self.ways(candidates))
        for shown in ways:
            self.maker.client.defense.expect(shown.images)
            chunk = _Chunk(self.maker, shown)
            for one in group:
                for setting in one.question.settings:
                    for seed in self._seeds(setting):
                        made = chunk.make(setting.at(seed))
                        at = as_slice(setting.columns)
                        seen = {name: u[at] for name, u in one.question.columns.items() if name in made}
                        one.add(at, first, self.law.score(seen, made))
        for one in group:
            one.close(first, len(candidates.images), math.log(len(ways) * max(self.draws, 1)))

    def ways(self, candidates: Batch) -> Iterator[Batch]:
        if not self.views:
            yield candidates
        for view in self.views:
            yield Batch(view.apply(candidates.images), candidates.labels)

    def _seeds(self, setting: Setting) -> Iterable[Seed | None]:
        return [Seed().at("line-up", "draw", n) for n in range(self.draws)] if self.draws else [setting.seed]


@dataclass
class _Chunk:
    """A few candidates, and what several places share of their updates."""

    maker: Maker
    candidates: Batch
    started: dict[Seed | None, Any] = field(default_factory=dict)
    finished: dict[Seed | None, Update] = field(default_factory=dict)

    def make(self, setting: Setting) -> Update:
        """The updates of the candidates in this setting."""
        if setting.alone and setting.seed in self.finished:
            return self.finished[setting.seed]
        if setting.seed not in self.started:
            self.started[setting.seed] = self.maker.start(setting, self.candidates)
        made = self.maker.make(setting, self.started[setting.seed])
        if setting.alone:
            self.finished[setting.seed] = made
        return made


@dataclass
class _Scores:
    """Of one question: log-likelihoods, and those of the chunk at work, whose ways are not summed up yet."""

    question: Question
    gallery: int
    scores: Tensor = field(init=False)

    def __post_init__(self) -> None:
        columns = len(next(iter(self.question.columns.values())))
        self.scores = torch.full((columns, self.gallery + len(self.question.own)), -math.inf, dtype=torch.float64)

    @property
    def label(self) -> Tensor:
        return self.question.settings[0].place.label

    def add(self, at: slice | list[int], first: int, scores: Tensor) -> None:
        """One more way in which these candidates may have made these columns."""
        part = slice(first, first + scores.shape[1])
        likely = scores.cpu().nan_to_num(nan=-math.inf)  # an update that is no number has made nothing
        self.scores[at, part] = torch.logaddexp(self.scores[at, part], likely)

    def close(self, first: int, count: int, ways: float) -> None:
        self.scores[:, first : first + count] -= ways


def as_slice(columns: Sequence[int]) -> slice | list[int]:
    """Neighbors as a slice: that is a view, and a copy of large updates takes as long as to compare them.

    >>> as_slice((2, 3, 4)), as_slice((0, 2))
    (slice(2, 5, None), [0, 2])
    """
    first, last = columns[0], columns[-1] + 1
    return slice(first, last) if list(columns) == list(range(first, last)) else list(columns)


def by_label(found: Sequence[_Scores]) -> list[list[_Scores]]:
    """Questions whose candidates carry the same label share what candidates make alone."""
    groups: dict[bytes, list[_Scores]] = {}
    for one in found:
        groups.setdefault(one.label.detach().cpu().double().numpy().tobytes(), []).append(one)
    return list(groups.values())


@dataclass(frozen=True)
class Simulated(Law):
    """Draws whose likelihood nobody knows: normal, with the spread that simulated updates have; an estimate."""

    spread: Mapping[str, Tensor]  # standard deviation of every number
    exact: bool = False

    def score(self, seen: Update, made: Update) -> Tensor:
        return -squared_distances(*({n: u[n] / self.spread[n] for n in made} for u in (seen, made))) / 2

    def fits(self, seen: Update, made: Update) -> bool:
        return True


def simulate_law(maker: Maker, setting: Setting, candidates: Batch, law: Law) -> Simulated:
    """From a few candidates' updates, each with several draws."""
    seeds = [Seed().at("line-up", "draw", number) for number in range(DRAWS)]
    settings = [setting.at(seed) for seed in seeds]
    each = [maker.make(one, maker.start(one, candidates)) for one in settings]
    noise = law.deviation if isinstance(law, Normal) else 0.0
    spread: dict[str, Tensor] = {}
    for name in each[0]:
        stack = torch.stack([update[name] for update in each])
        least = FLOOR * stack.square().mean().sqrt() + noise + torch.finfo(stack.dtype).tiny ** 0.5
        spread[name] = stack.var(0).mean(0).sqrt().clamp_min(least)
    return Simulated(spread)
