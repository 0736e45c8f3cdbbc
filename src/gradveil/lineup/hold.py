"""Holds a line-up: of every private picture, whether its update names it among candidates.

A place is asked about several times: with its own picture, and with pictures of the gallery that take its place, of the
same class. The theorem behind it: if the true picture is any of the candidates with the same chance, no attack names it
more often on average than the most likely candidate does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.law import squared_distances
from gradveil.core.scenario import Scenario
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch, Update
from gradveil.lineup.candidates import COPIES, Gallery, near_copies, with_label
from gradveil.lineup.client import Client, Place, Played
from gradveil.lineup.make import Maker, Setting
from gradveil.lineup.replay import settle_ties
from gradveil.lineup.score import DRAWS, POOLED, Guesser, Question, simulate_law

Kind = Literal["exact", "bound", "estimated"]
REPLAYED = 1e-3  # of its length: an update is the one that the client sends


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Of one place: the rank of the true picture in every trial, 1 is named. The first trial is about its own picture.

    near: the same for a near copy in the picture's place among the candidates. in_class: among the candidates of the
    label alone. other: the rank of the own picture, in its class, by the update of another client: those of other
    classes are no match for it, whatever the update is. fits, replayed: whether the update
    is as far from what its picture makes as the law says, and whether it is what the client sends (None: not known).
    """

    client: str
    example: int
    candidates: int
    ranks: tuple[int, ...]
    near: Mapping[str, tuple[int, ...]]
    in_class: tuple[int, ...]
    class_candidates: int
    other: int | None
    other_candidates: int
    fits: bool
    replayed: bool | None
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One picture in a place, and what was received of it, round by round."""

    place: Place
    row: int | None  # of the gallery; None: the place's own picture
    picture: Tensor
    updates: Sequence[Update]
    seeds: Sequence[Seed]  # of each round; none of real clients
    played: Sequence[Played] = ()


@dataclass(frozen=True, kw_only=True)
class LineUp:
    """How it is held. standins: pictures of the gallery that are put into each place."""

    scenario: Scenario
    defense: Defense
    gallery: Gallery
    seed: Seed  # of the rounds, as the audit plays them
    standins: int = 0

    def hold(
        self, places: Sequence[Place], updates: Sequence[Sequence[Update]], asked: int | None = None
    ) -> list[Ranks]:
        """`updates`: of every place what the server received, round by round, the last round last.

        asked: how many of the places, from the first on, are looked for; the others lend their updates (default all).
        """
        client = Client.of(self.scenario, self.defense)
        client.defense.expect(torch.cat([self.gallery.images, torch.stack([place.picture for place in places])]))
        trials = [list(self._trials(client, *given)) for given in zip(places, updates, strict=True)]
        guesser, kind, granted = self._prepare(client, trials[0][0])
        questions = [self._ask(client, guesser, trials, at, granted) for at in range(len(places))[:asked]]
        scores = guesser.score(questions, self.gallery)
        given = zip(questions, scores, strict=True)
        scores = [settle_ties(guesser, question, own, self.gallery) for question, own in given]
        return [self._rank(guesser, kind, *one) for one in zip(trials[:asked], questions, scores, strict=True)]

    def _prepare(self, client: Client, trial: Trial) -> tuple[Guesser, Kind, bool]:
        """Who is not told the labels takes every candidate with its own. Where nobody knows those, the label is
        granted: no attacker without it names more."""
        guesser, kind, granted = prepare(client, trial, self.gallery.images)
        if self.scenario.threat.knows_labels:
            return guesser, kind, granted
        if self.gallery.labels is None:
            return guesser, "bound" if kind == "exact" else kind, granted
        return guesser.with_own_labels(), kind, granted

    def _trials(self, client: Client, place: Place, received: Sequence[Update]) -> Iterator[Trial]:
        real = self.scenario.received is not None
        seeds = [] if real else _rounds(self.seed, len(received))
        played = [client.play(place, place.picture, seed) for seed in seeds]
        yield Trial(place=place, row=None, picture=place.picture, updates=received, seeds=seeds, played=played)
        for number, row in enumerate(() if real else self._draw_standins(place)):
            seeds = _rounds(self.seed.at("line-up", place.client, place.example, number), len(received))
            picture = self.gallery.images[row].to(place.picture)
            played = [client.play(place, picture, seed) for seed in seeds]
            yield Trial(place=place, row=row, picture=picture, updates=[one.update for one in played],
                        seeds=seeds, played=played)  # fmt: skip

    def _of_class(self, place: Place) -> list[int]:
        """Rows of the gallery; none where pictures have no class: masks and numbers are each their own."""
        return self.gallery.of_class(place.label) if self.scenario.target.has_classes else []

    def _draw_standins(self, place: Place) -> list[int]:
        rows = self._of_class(place) if self.scenario.target.has_classes else list(range(len(self.gallery.images)))
        if not self.scenario.threat.knows_labels and self.gallery.labels is not None:  # candidates have their own
            rows = [row for row in rows if self.gallery.labels[row].to(place.label).equal(place.label)]
        order = torch.randperm(len(rows), generator=self.seed.at("stand-ins", place.client, place.example).rng())
        return [rows[at] for at in order.tolist()[: self.standins]]

    def _ask(
        self, client: Client, guesser: Guesser, trials: Sequence[Sequence[Trial]], at: int, granted: bool
    ) -> Question:
        """All columns of one place: its trials, round by round, then the first trial of another place."""
        own, other = trials[at], _trial_of_another(trials, at)
        rounds = [(trial, number) for trial in own for number in range(len(trial.updates))]
        columns = [trial.updates[number] for trial, number in rounds]
        settings, answered = list(make_settings(rounds, bool(guesser.views), granted)), len(columns)
        if other is not None:
            settings[0] = _wider(settings[0], range(len(columns), len(columns) + len(other.updates)))
            columns += other.updates
        shown = [own[0].place.picture, *(copy for trial in own for copy in near_copies(trial.picture))]
        stacked = {name: torch.stack([u[name] for u in columns]) for name in columns[0]}
        return Question(settings=tuple(settings), columns=stacked, own=torch.stack(shown), answered=answered)

    def _rank(self, guesser: Guesser, kind: Kind, trials: Sequence[Trial], question: Question, scores: Tensor) -> Ranks:
        place, size, rounds = trials[0].place, len(self.gallery.images), len(trials[0].updates)
        by_trial = [scores[at * rounds : (at + 1) * rounds].sum(0) for at in range(len(trials))]
        rng = self.seed.at("ties", place.client, place.example).rng()
        listed, own_class = list(range(size + 1)), [*self._of_class(place), size]
        alike = own_class if len(own_class) > 1 else listed
        at = [size if trial.row is None else trial.row for trial in trials]
        near = {
            name: tuple(
                _rank_of(one, size + 1 + len(COPIES) * number + kind_at, [c for c in listed if c != at[number]], rng)
                for number, one in enumerate(by_trial)
            )
            for kind_at, name in enumerate(COPIES)
        }
        others = scores[len(trials) * rounds :]
        return Ranks(
            client=place.client,
            example=place.example,
            candidates=size + 1,
            ranks=tuple(_rank_of(one, p, listed, rng) for one, p in zip(by_trial, at, strict=True)),
            near=near,
            in_class=tuple(_rank_of(one, p, own_class, rng) for one, p in zip(by_trial, at, strict=True)),
            class_candidates=len(own_class),
            other=_rank_of(others.sum(0), size, alike, rng) if len(others) else None,
            other_candidates=len(alike),
            fits=_fits(guesser, trials[0], question.settings[0]),
            replayed=_is_replayed(trials[0]),
            kind=kind,
        )


def _trial_of_another(trials: Sequence[Sequence[Trial]], at: int) -> Trial | None:
    """Of the next client: pictures of one client have one update."""
    own = trials[at][0].place.client
    following = [*trials[at + 1 :], *trials[:at]]
    return next((one[0] for one in following if one[0].place.client != own), None)


def _rounds(seed: Seed, count: int) -> list[Seed]:
    """As `gradveil.core.server.observe` names them."""
    return [*(seed.at("round", number) for number in range(count - 1)), seed]


def prepare(client: Client, trial: Trial, gallery: Tensor) -> tuple[Guesser, Kind, bool]:
    """How to guess: by which law, through which views, and whether what was drawn has to be granted or simulated."""
    place, quiet = trial.place, client.quiet
    law = client.defense.law(client.round_of(place))
    if law is None:
        raise NotApplicableError("no likelihood is known of what this defense draws")
    views = client.defense.knowledge().views if client.training.steps == 1 else ()
    viewed = quiet.without_views if views else quiet
    first, second = (viewed.play(place, place.picture, Seed().at("line-up", "try", n)) for n in range(2))
    drawn = client.training.draws or not _is_same(first.update, second.update)
    shown = drawn and client.defense.shows_draws and bool(trial.seeds)
    granted = client.training.feeds_draws or _fed_differs(first, second) or shown
    granted = granted and not _is_kept(client, trial)
    drawn = drawn and not granted
    setting = Setting(place=place, columns=(0,), members=place.members, seed=Seed() if granted or drawn else None)
    maker = Maker.of(quiet if granted else viewed, setting)
    if drawn:
        spread = simulate_law(maker, setting, with_label(gallery[:POOLED], place.label), law)
        return Guesser(maker=maker, law=spread, views=views, draws=DRAWS), "estimated", False
    kind: Kind = "estimated" if not law.exact else "bound" if granted else "exact"
    return Guesser(maker=maker, law=law, views=() if granted else views), kind, granted


def _is_kept(client: Client, trial: Trial) -> bool:
    """Whether all that was drawn is the order or the crops of a client who was not played here: they are simulated."""
    feeds_others = any(map(client.defense.acts_at, ("data", "batch")))
    return not trial.seeds and client.training.feeds_draws and not feeds_others


def make_settings(rounds: Sequence[tuple[Trial, int]], has_views: bool, granted: bool) -> Iterator[Setting]:
    """One for all rounds, or one for each where other pictures were fed or other draws made in each."""
    trial = rounds[0][0]
    pictures = sum(len(batch.images) for batch in trial.place.members)
    if not granted and (not has_views or pictures == 1):
        yield Setting(place=trial.place, columns=tuple(range(len(rounds))), members=trial.place.members)
        return
    for column, (trial, number) in enumerate(rounds):
        if not trial.seeds:
            raise NotApplicableError("what a real client drew is not known, so its update has no likelihood")
        fed = trial.place.members if granted else tuple(steps[0] for steps in trial.played[number].fed)
        seed = trial.seeds[number] if granted else None
        yield Setting(place=trial.place, columns=(column,), members=fed, seed=seed)


def _wider(setting: Setting, columns: Sequence[int]) -> Setting:
    return replace(setting, columns=(*setting.columns, *columns))


def _rank_of(scores: Tensor, own: int, others: Sequence[int], rng: torch.Generator) -> int:
    """Of equal ones the order is drawn, as a guesser would."""
    rivals = scores[[at for at in others if at != own]]
    equal = int((rivals == scores[own]).sum())
    return 1 + int((rivals > scores[own]).sum()) + int(torch.randint(equal + 1, (1,), generator=rng))


def _fits(guesser: Guesser, trial: Trial, setting: Setting) -> bool:
    """Whether the update is one that the picture may well have made, through any view."""
    if not all(bool(u.isfinite().all()) for update in trial.updates for u in update.values()):
        return False
    if not guesser.law.exact:
        return True
    seen = {name: u.unsqueeze(0) for name, u in trial.updates[0].items()}
    shown = trial.picture.unsqueeze(0)
    for picture in (view.apply(shown) for view in guesser.views) if guesser.views else (shown,):
        played = guesser.maker.play(setting, Batch(picture[0], trial.place.label))  # to the last bit as the client does
        made = {name: u.unsqueeze(0) for name, u in played.items()}
        if guesser.law.fits({name: seen[name] for name in made}, made):
            return True
    return False


def _is_replayed(trial: Trial) -> bool | None:
    if not trial.played:
        return None
    return all(_is_same(one.update, update) for one, update in zip(trial.played, trial.updates, strict=True))


def _is_same(one: Update, other: Update) -> bool:
    rows = [{name: u.unsqueeze(0) for name, u in update.items()} for update in (one, other)]
    size = sum(float(u.double().square().sum()) for u in other.values())
    return float(squared_distances(*rows)[0, 0]) <= REPLAYED**2 * size


def _fed_differs(one: Played, other: Played) -> bool:
    pairs = zip(one.fed, other.fed, strict=True)
    return any(
        not torch.equal(x, y) for a, b in pairs for s, t in zip(a, b, strict=True) for x, y in zip(s, t, strict=True)
    )


def share_named(ranks: Sequence[int], top: int = 1) -> float:
    return sum(rank <= top for rank in ranks) / len(ranks) if ranks else math.nan
