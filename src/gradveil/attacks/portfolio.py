"""The strongest search in full, and a race of the others for the pictures that it does not find.

`coarse-to-fine` beats the other searches at equal time where it finds its way, so it runs first and takes most of the
time. No search is best everywhere: for each client whose update it leaves open, the others then run their whole
schedule with few steps, and what is ahead of it by the attacker's own match runs in full. The best of all results is
reported. Nothing of it sees the truth. One attack with its own controls: an arm that is no arm by itself is of no use
to its verdict.
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
from gradveil.core.attack import Attack, Reconstruction, Use, times
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.engine.inversion import Inversion
from gradveil.engine.labels import given_or_idlg, without_rules
from gradveil.engine.priors.prior import Prior

PAPER = None  # it is ours: a race of published searches
GRAY = 0.5
ARMS: Mapping[str, Callable[..., Inversion]] = {  # the first that applies runs in full
    "coarse-to-fine": coarse_to_fine,
    "coarse-to-fine on all layers": partial(coarse_to_fine, part="all"),
    "coarse-to-fine on early layers": partial(coarse_to_fine, part="early"),
    "dlg": partial(dlg, restarts=1),
    "headless": partial(headless, tv=1e-2),
    "invertgrad": partial(invertgrad, tv=1e-2),
    "invertgrad-unsigned": partial(invertgrad_unsigned, tv=1e-2),
    "gradinversion-full": partial(gradinversion_full, restarts=2),
}
FIRST = 16  # of the steps every other arm gets one in so many
FOUND = 0.1  # of what a gray picture leaves unexplained: a client of whom no more is left needs no other search


def portfolio(*, steps: int = 2400, finalists: int = 1) -> Portfolio:
    """`coarse-to-fine` in full; for pictures that it does not find a race of other searches, the best ones in full.

    `steps`: of a search that runs in full; `finalists`: searches, for each client, that do so after the first.
    """
    return Portfolio(arms={name: make(steps=steps) for name, make in ARMS.items()}, steps=steps, finalists=finalists)


@dataclass(frozen=True, kw_only=True)
class Portfolio(Attack):
    """Every arm is an inversion with all its steps; the race cuts them."""

    arms: Mapping[str, Inversion]
    steps: int
    finalists: int = 1

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
        """Without an update there is nothing to race for: no second search in full."""
        return replace(self, arms={name: arm.prior_only() for name, arm in self.arms.items()}, finalists=0)

    def scaled(self, factor: float) -> Portfolio:
        arms = {name: arm.scaled(factor) for name, arm in self.arms.items()}
        return replace(self, arms=arms, steps=times(self.steps, factor))

    @property
    def evaluations(self) -> tuple[int, int]:
        """The first arm in full; at most also the race, and the longest others in full."""
        first, *others = (arm.evaluations[1] for arm in self.arms.values())
        longest = sorted(others)[::-1][: self.finalists]
        return first, first + sum(others) // FIRST + sum(longest)

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        """`loss` is 1 - cosine over all layers."""
        seen, notes = next(iter(self.arms.values())).complete_training(seen.average_rounds(), compute)
        if not without_rules(seen):
            seen = replace(seen, labels=given_or_idlg(seen))
        race = Race(seen, seed, compute)
        others = race.lead(self.arms)
        for name, arm in others.items():
            race.run(name, replace(arm, steps=max(1, arm.steps // FIRST)), race.left)
        for name, clients in race.finalists(self.finalists).items():
            race.run(name, self.arms[name], clients, "final")
        return race.end(notes)


class Race:
    """What the arms have brought so far, for each client."""

    def __init__(self, seen: Observation, seed: Seed, compute: Compute) -> None:
        self.seen, self.seed, self.compute = seen, seed, compute
        self.best: Reconstruction | None = None
        self.score = torch.full((len(seen.names),), torch.inf)
        self.left: Sequence[int] = range(len(seen.names))  # clients whose pictures the first search has not found
        self.ahead: dict[str, Tensor] = {}  # arms of the race: scores of clients in `left`, infinite if behind
        self.leader = [""] * len(seen.names)
        self.notes: dict[str, None] = {}

    def lead(self, arms: Mapping[str, Inversion]) -> dict[str, Inversion]:
        """The first arm that applies in full on everybody; those after it, for whom it leaves open."""
        for place, (name, arm) in enumerate(arms.items(), 1):
            if self.run(name, arm, self.left):
                self.left = self.unexplained()
                return dict(list(arms.items())[place:]) if self.left else {}
        raise NotApplicableError(f"no search applies, {'; '.join(self.notes)}", key="portfolio")

    def unexplained(self) -> list[int]:
        """Clients of whom the best pictures leave more than a share of what gray ones do."""
        assert self.best is not None
        gray = compare(replace(self.best, images=torch.full_like(self.best.images, GRAY)), self.seen)
        return (~(self.best.loss <= FOUND * gray.loss)).nonzero()[:, 0].tolist()

    def run(self, name: str, arm: Inversion, clients: Sequence[int], *time: str) -> bool:
        """One arm on some clients; one that cannot work on this model is left out."""
        seen = self.seen.take(clients)
        try:
            got = compare(arm.reconstruct(seen, self.seed.at(name, *time), self.compute), seen)
        except NotApplicableError as error:
            self.notes[f"{name} left out: {error}"] = None
            return False
        self.notes |= dict.fromkeys(got.notes)
        before = self.score
        self.best, self.score = keep_better(self.best or got, got, self.score, clients)
        better = [bool(self.score[client] < before[client]) for client in clients]
        self.ahead.setdefault(name, score_of(got).where(torch.tensor(better), torch.inf))
        for client, is_better in zip(clients, better, strict=True):
            self.leader[client] = name if is_better else self.leader[client]
        return True

    def finalists(self, count: int) -> dict[str, list[int]]:
        """The clients that each arm is run on in full: where, after a few steps, it was ahead of the first in full."""
        names = list(self.ahead)[1:]
        if not names:
            return {}
        scores = torch.stack([self.ahead[name] for name in names])
        rank = scores.argsort(dim=0, stable=True).argsort(dim=0)
        runs = (rank < count) & scores.isfinite()
        chosen = {
            name: [self.left[place] for place in row.nonzero()[:, 0].tolist()]
            for name, row in zip(names, runs, strict=True)
        }
        return {name: clients for name, clients in chosen.items() if clients}

    def end(self, notes: tuple[str, ...]) -> Reconstruction:
        assert self.best is not None
        won = ", ".join(f"{name} ({often}x)" for name, often in Counter(self.leader).most_common() if name)
        return replace(self.best, notes=(*notes, *self.notes, f"race of {len(self.ahead)} searches, won by {won}"))
