"""A parameter-free ensemble, from cheap to strong, after AutoAttack (Croce and Hein, 2020): nobody has to know which
attack suits the model at hand.

An audit runs its stages as attacks of their own, so that each has its controls and the worst of them counts picture by
picture; pictures recovered whole drop out of the stages that follow. Differs from AutoAttack: the stages are attacks on
privacy, and a stage that has nothing to work on in a model is left out and named. Where the server may change the
model, an audit runs the attacks of `PLANTED` first, `unmix` and `cah-separate` among them if a defense feeds copies;
`AutoAttack` itself plants nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradveil.attacks.april import april
from gradveil.attacks.cocktail_party import cocktail_party
from gradveil.attacks.compare import compare, keep_better
from gradveil.attacks.learned_inverter import learned_inverter
from gradveil.attacks.linear import linear
from gradveil.attacks.portfolio import portfolio
from gradveil.attacks.r_gap import r_gap
from gradveil.attacks.spear import spear
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.check import options_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import NotApplicableError
from gradveil.core.observation import Observation
from gradveil.core.paper import Paper
from gradveil.core.seeds import Seed

PAPER = Paper(
    "Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free Attacks",
    "Croce and Hein",
    2020,
    "arXiv:2003.01690",
)
STAGES: Mapping[str, Callable[..., Attack]] = {
    "linear": linear,
    "april": april,
    "cocktail-party": cocktail_party,
    "spear": spear,
    "r-gap": r_gap,
    "portfolio": portfolio,
}
# stage -> options of `learned-inverter`, where networks for it are given
LEARNED: Mapping[str, Mapping[str, bool]] = {"learned-inverter": {}, "learned-inverter-search": {"search": True}}
# stage -> attack and options, where the server may plant. Sparse, since pruning spares rows that are alone with a
# picture; three functionals, since pictures that are turned or mirrored keep their mean but not the others
PLANTED: Mapping[str, tuple[str, Mapping[str, str | bool]]] = {
    "rtf": ("rtf", {"functional": "mean", "sparse": True}),
    "rtf-fourier": ("rtf", {"functional": "fourier:32", "sparse": True}),
    "rtf-random": ("rtf", {"functional": "random", "sparse": True}),
    "cah": ("cah", {}),
    "cah-separate": ("cah", {}),  # where a defense feeds copies by known transforms
    "unmix": ("unmix", {}),  # where a defense feeds copies: without them it is rtf once more
}
BINS_PER_PICTURE, FEWEST_BINS, MOST_BINS = 16, 256, 4096
EXPLAINED = 1e-6  # 1 - cosine: a picture whose update is this close to the one received needs no further stage


def autoattack(*, steps: int | None = None, inverter: tuple[str, ...] | str = "") -> AutoAttack:
    """The default: closed forms, then a `portfolio` of searches that begins with `coarse-to-fine`, where they apply.

    `steps` limits every stage that takes steps; without it each has its own. `inverter`: files of `gradveil
    train-inverter`, with which `learned-inverter` follows, alone and as the start of a search.
    """
    given: dict[str, Any] = {} if steps is None else {"steps": steps}
    stages = {name: make(**(given if "steps" in options_of(make) else {})) for name, make in STAGES.items()}
    learned = LEARNED if inverter else {}
    after = {name: learned_inverter(inverter=inverter, **options, **given) for name, options in learned.items()}
    return AutoAttack(stages=stages | after)


def planted_stages(examples: int, copies: int = 1, transforms: str = "") -> dict[str, tuple[str, dict[str, Any]]]:
    """The attacks that plant, and their options for updates of so many pictures, of which some defense feeds copies.

    `transforms` are what makes the copies, where that is known: see `transforms_of`.
    """
    neurons = min(max(BINS_PER_PICTURE * examples * copies, FEWEST_BINS), MOST_BINS)
    sizes: Mapping[str, dict[str, Any]] = {
        "cah": {"examples": examples * copies},
        "cah-separate": {"examples": examples, "separate": transforms},
    }
    left_out = {"unmix": copies == 1, "cah-separate": not transforms}
    stages = {stage: method for stage, method in PLANTED.items() if not left_out.get(stage)}
    return {
        stage: (name, {**options, "neurons": neurons, **sizes.get(stage, {})})
        for stage, (name, options) in stages.items()
    }


def transforms_of(defenses: Iterable[Defense]) -> str:
    """What makes the copies of all these defenses, as `cah` takes it; empty where none of them makes any."""
    return "+".join(dict.fromkeys(name for one in defenses for name in one.knowledge().transforms))


@dataclass(frozen=True, kw_only=True)
class AutoAttack(Attack):
    """Every stage in turn; for each client the reconstruction that explains its update best without being rough."""

    stages: Mapping[str, Attack]

    def networks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(file for stage in self.stages.values() for file in stage.networks()))

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        return run_stages(seen, self.stages.items(), seed, compute)


def run_stages(seen: Observation, stages: Iterable[tuple[str, Attack]], seed: Seed, compute: Compute) -> Reconstruction:
    """Each stage on the clients whose updates those before it left unexplained; the best for each client."""
    best: Reconstruction | None = None
    score = torch.full((len(seen.names),), torch.inf)
    left, notes = list(range(len(seen.names))), []
    for name, stage in stages:
        try:
            stage.check(seen.take(left))
            got = compare(stage.reconstruct(seen.take(left), seed.at(name), compute), seen.take(left))
        except NotApplicableError as error:
            notes.append(f"{name} left out: {error}")
            continue
        best, score = keep_better(best or got, got, score, left)
        left = [client for client in left if not best.loss[client] < EXPLAINED]
        if not left:
            break
    if best is None:
        raise NotApplicableError(f"no stage applies, {'; '.join(notes)}", key="autoattack")
    return replace(best, notes=(*best.notes, *notes))
