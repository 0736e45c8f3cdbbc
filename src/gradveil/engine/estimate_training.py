"""Local steps and rate of a round, worked out by an attacker who was not told.

The direction of an update says little of the rate, but how the gradient turned on the way depends on both. So each
number of steps is tried in a short search; its rate is what makes the dummy's update as long as the one received; and
the one that matches best is kept. Where two match alike, they hardly differ in what the attack makes of them.
Clients of a round train alike, so the first few by name tell for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradveil.core.compute import Compute
from gradveil.core.observation import Observation
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Latent, Update
from gradveil.engine.backend import choose
from gradveil.engine.descent import Descent, Objective, best_of, eager
from gradveil.engine.distance import Cosine
from gradveil.engine.labels import given_or_idlg
from gradveil.engine.lbfgs import Lbfgs
from gradveil.engine.matcher import OneTrial
from gradveil.engine.spaces.space import Pixels

STEPS = (1, 2, 5, 10)  # local steps that are tried
CLIENTS = 4
FIRST, MORE, ROUNDS = 80, 25, 4  # values of the first search and of each later one, after each of which comes a rate
CORRECTIONS = 10
ALIKE = 1.5  # matches within this factor are the same, and the fewest steps are the simplest


@dataclass(frozen=True)
class Hypothesis:
    """A number of steps and its rate, and how well they match."""

    training: LocalTraining
    match: float


def estimate_training(
    seen: Observation, compute: Compute = Compute(), steps: tuple[int, ...] = ()
) -> tuple[LocalTraining, tuple[str, ...]]:
    """The training that explains the updates best, among these numbers of steps, and a note that says which."""
    few = sorted(range(len(seen.names)), key=lambda client: seen.names[client])[:CLIENTS]
    seen = seen.take(few)
    seen = replace(seen, labels=given_or_idlg(seen))
    tried = hypotheses(seen, compute, steps or STEPS)
    least = min(hypothesis.match for hypothesis in tried)
    best, *others = [h.training for h in tried if h.match <= ALIKE * least] or [tried[0].training]
    note = f"local steps and rate estimated: tau = {best.steps}, rate = {best.rate:.2g}"
    alike = ", ".join(str(training.steps) for training in others)
    return best, (f"{note}; tau = {alike} would match alike" if alike else note,)


def hypotheses(seen: Observation, compute: Compute, steps: tuple[int, ...]) -> list[Hypothesis]:
    """Each number of steps, from the same first guess of the pictures."""
    start, _ = search(replace(seen, training=replace(seen.training, steps=1)), _starts(seen), FIRST, compute)
    return [_hypothesis(seen, start, number, compute) for number in steps]


def _hypothesis(seen: Observation, z: Latent, steps: int, compute: Compute) -> Hypothesis:
    training, match = replace(seen.training, steps=steps, rate=_length(seen, z) / steps), float("inf")
    for _ in range(ROUNDS):
        training = _as_long(seen, z, training)
        z, match = search(replace(seen, training=training), z, MORE, compute)
    return Hypothesis(_as_long(seen, z, training), match)


def _as_long(seen: Observation, z: Latent, training: LocalTraining) -> LocalTraining:
    """The rate at which these pictures' updates are as long as those received; steps that end where they learned all
    there is to learn grow slower than their rate, so one correction is not enough."""
    for _ in range(CORRECTIONS):
        factor = _length(replace(seen, training=training), z)
        training = replace(training, rate=training.rate * factor)
        if abs(factor - 1) < 1e-3:
            break
    return training


def search(seen: Observation, z: Latent, values: int, compute: Compute) -> tuple[Latent, float]:
    """Where a short search ends, and the median match of the clients: blind to length, so to most of the rate."""
    distance, space = Cosine(), Pixels().bind(seen)
    backend = choose(seen, distance, "auto" if compute.backend == "sweep" else compute.backend)
    descent = Descent(Objective(backend.matcher(seen, distance), space, ()), Lbfgs(), values)
    end = descent.run(z, eager)
    return best_of(end), end["match"].nanmedian().item()


def _starts(seen: Observation) -> Latent:
    space = Pixels().bind(seen)
    starts = [space.init(Seed().at("rounds"), name, 0) for name in seen.names]
    return {key: torch.stack([start[key] for start in starts]) for key in starts[0]}


def _length(seen: Observation, z: Latent) -> float:
    """By what the dummies' updates must be multiplied to come nearest to those received; the median of the clients."""
    assert seen.labels is not None
    one, fed = OneTrial.of(seen, LeastSquares()), Pixels().bind(seen).decode(z)
    with torch.no_grad():
        each = [one(fed[i], seen.labels[i], {n: u[i] for n, u in seen.update.items()}) for i in range(len(fed))]
    found = torch.stack(each)
    usable = found[found.isfinite() & (found > 0)]
    return usable.median().item() if len(usable) else 1.0


@dataclass(frozen=True)
class LeastSquares:
    """Not a distance but a factor: of the dummy, so that it comes nearest to what was seen."""

    def __call__(self, dummy: Update, seen: Update) -> Tensor:
        cross = torch.stack([(dummy[n] * seen[n]).sum() for n in seen]).sum()
        square = torch.stack([dummy[n].square().sum() for n in seen]).sum()
        return cross / square
