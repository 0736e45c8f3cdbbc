"""Searches of different kinds as a race: all of them a little for each picture, the most promising ones in full.

No search is best everywhere: L-BFGS needs slopes that do not jump, signed steps serve trained networks, unsigned ones
batches. So every arm first runs its whole schedule with an eighth of the steps. For each client the best two by the
attacker's own match then run in full, from other starts, and the best of all results is reported. Nothing of it sees
the truth. One attack with its own controls: an arm that is no arm by itself is of no use to its verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gradveil.attacks.coarse_to_fine import coarse_to_fine
from gradveil.attacks.compare import compare, keep_better, score_of
from gradveil.attacks.dlg import dlg
from gradveil.attacks.gradinversion import gradinversion_full
from gradveil.attacks.headless import headless
from gradveil.attacks.invertgrad import invertgrad, invertgrad_unsigned
from gradveil.core.attack import Attack, Reconstruction, Use
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.inversion import Inversion
from gradveil.engine.labels import given_or_idlg
from gradveil.engine.priors.prior import Prior

PAPER = None  # it is ours: a race of published searches
ARMS: Mapping[str, Callable[..., Inversion]] = {
    "coarse-to-fine": partial(coarse_to_fine, restarts=2),
    "coarse-to-fine on all layers": partial(coarse_to_fine, part="all"),
    "coarse-to-fine on early layers": partial(coarse_to_fine, part="early"),
    "dlg": dlg,
    "headless": headless,
    "invertgrad": invertgrad,
    "invertgrad-unsigned": invertgrad_unsigned,
    "gradinversion-full": gradinversion_full,
}
FIRST = 8  # of the steps every arm gets one in so many
BEHIND = 10.0  # times the best score of the first round: such an arm is out


def portfolio(*, steps: int = 2400, finalists: int = 2) -> Portfolio:
    """A race of searches: every kind with an eighth of the steps, then for each picture the best ones in full.

    `steps`: of a search that runs in full; `finalists`: searches that do, for each client.
    """
    return Portfolio(arms={name: make(steps=steps) for name, make in ARMS.items()}, steps=steps, finalists=finalists)


@dataclass(frozen=True, kw_only=True)
class Portfolio(Attack):
    """Every arm is an inversion with all its steps; the race cuts them."""

    arms: Mapping[str, Inversion]
    steps: int
    finalists: int = 2

    @property
    def uses(self) -> frozenset[Use]:
        return frozenset().union(*(arm.uses for arm in self.arms.values()))

    @property
    def priors(self) -> tuple[Prior, ...]:
        """Of all arms: what a report lists."""
        return tuple(prior for arm in self.arms.values() for prior in arm.priors)

    def undefended(self) -> Portfolio:
        return replace(self, arms={name: arm.undefended() for name, arm in self.arms.items()})

    def prior_only(self) -> Portfolio:
        """Every arm a little: without an update there is nothing to race for."""
        return replace(self, arms={name: arm.prior_only() for name, arm in self.arms.items()}, finalists=0)

    def doubled(self) -> Portfolio:
        return replace(self, arms={name: arm.doubled() for name, arm in self.arms.items()}, steps=2 * self.steps)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        """`loss` is 1 - cosine over all layers."""
        seen, notes = next(iter(self.arms.values())).complete_training(seen.average_rounds(), compute)
        race = Race(replace(seen, labels=given_or_idlg(seen)), seed, compute)
        everybody = range(len(seen.names))
        for name, arm in self.arms.items():
            race.run(name, replace(arm, steps=max(1, arm.steps // FIRST)), everybody)
        for name, clients in race.finalists(self.finalists).items():
            race.run(name, self.arms[name], clients, "final")
        return race.end(notes)


class Race:
    """What the arms have brought so far, for each client."""

    def __init__(self, seen: Observation, seed: Seed, compute: Compute) -> None:
        self.seen, self.seed, self.compute = seen, seed, compute
        self.best: Reconstruction | None = None
        self.score = torch.full((len(seen.names),), torch.inf)
        self.of_arm: dict[str, Tensor] = {}  # scores of the first round
        self.leader = [""] * len(seen.names)
        self.notes: dict[str, None] = {}

    def run(self, name: str, arm: Inversion, clients: Sequence[int], *time: str) -> None:
        """One arm on some clients; one that cannot work on this model is left out."""
        seen = self.seen.take(clients)
        try:
            got = compare(arm.reconstruct(seen, self.seed.at(name, *time), self.compute), seen)
        except NotApplicableError as error:
            self.notes[f"{name} left out: {error}"] = None
            return
        self.notes |= dict.fromkeys(got.notes)
        self.of_arm.setdefault(name, score_of(got).nan_to_num(nan=torch.inf))
        before = self.score
        self.best, self.score = keep_better(self.best or got, got, self.score, clients)
        for client in clients:
            if self.score[client] < before[client]:
                self.leader[client] = name

    def finalists(self, count: int) -> dict[str, list[int]]:
        """The clients that each arm is run on in full."""
        if not self.of_arm:
            raise NotApplicableError(f"no search applies, {'; '.join(self.notes)}", key="portfolio")
        names = list(self.of_arm)
        scores = torch.stack([self.of_arm[name] for name in names])
        rank = scores.argsort(dim=0, stable=True).argsort(dim=0)
        runs = (rank < count) & (scores <= BEHIND * scores.amin(0))
        chosen = {name: row.nonzero()[:, 0].tolist() for name, row in zip(names, runs, strict=True)}
        return {name: clients for name, clients in chosen.items() if clients}

    def end(self, notes: tuple[str, ...]) -> Reconstruction:
        assert self.best is not None
        won = ", ".join(f"{name} ({often}x)" for name, often in Counter(self.leader).most_common() if name)
        return replace(self.best, notes=(*notes, *self.notes, f"race of {len(self.of_arm)} searches, won by {won}"))
