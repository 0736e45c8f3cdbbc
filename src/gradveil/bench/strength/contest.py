"""Every attack on one case. `autoattack` runs first; each search then gets the steps that take as long as it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from gradveil.attacks import ATTACKS
from gradveil.bench.strength.cases import Case, victims
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.check import options_of
from gradveil.core.compute import Compute
from gradveil.core.errors import NotApplicableError
from gradveil.core.seeds import Seed
from gradveil.metrics import align
from gradveil.metrics.psnr import peak_signal_to_noise
from gradveil.metrics.retrieval import count_ahead
from gradveil.metrics.ssim import structural_similarity

OURS = "autoattack"
# one of each kind, `portfolio` aside, which is the search of `autoattack`; what has nothing to work on is left out
CONTESTANTS = (
    "linear",
    "april",
    "cocktail-party",
    "spear",
    "r-gap",
    "coarse-to-fine",
    "dlg",
    "invertgrad",
    "invertgrad-unsigned",
    "headless",
    "gradinversion",
    "gradinversion-full",
)
LEAST = 4.0  # seconds for each search, where `autoattack` is done sooner by a closed form
FEW, MORE = 5, 15  # steps by which a search is timed
FEWEST, MOST = 20, 24_000  # steps of a search


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one attack made of all pictures of a case; lists are [client][example]."""

    attack: str
    psnr: list[list[float]]
    ssim: list[list[float]]
    rank: list[list[float]]  # in the gallery; 1 is the nearest
    seconds: float | None  # of processor time, all clients together; None where a peer does not say
    steps: int | None = None  # of a search, as many as fit the time

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Timed:
    got: Reconstruction
    seconds: float


def run_contest(
    case: Case, steps: int, seed: Seed, compute: Compute = Compute(), done: Sequence[Entry] = ()
) -> Iterator[Entry]:
    """`steps` are those of the search of `autoattack`: what it takes is the time of all. What is `done` stays."""
    had = {entry.attack: entry for entry in done}
    ours = had.get(OURS) or enter(OURS, ATTACKS[OURS](steps=steps), case, seed, compute, steps)
    yield ours
    budget = max(ours.seconds or 0.0, LEAST)
    for name in CONTESTANTS:
        if name in had:
            yield had[name]
            continue
        try:
            taken = steps_within(ATTACKS[name], case, budget, seed, compute)
            attack = ATTACKS[name]() if taken is None else ATTACKS[name](steps=taken)
            attack.check(case.seen)
            yield enter(name, attack, case, seed, compute, taken)
        except NotApplicableError:
            continue


def enter(name: str, attack: Attack, case: Case, seed: Seed, compute: Compute, steps: int | None) -> Entry:
    timed = run_timed(attack, case, seed, compute)
    return judge(case, name, timed.got.images, timed.got.found, timed.seconds, steps)


def run_timed(attack: Attack, case: Case, seed: Seed, compute: Compute) -> Timed:
    """Processor time of this process, all its threads together: load of others does not count."""
    begin = time.process_time()
    got = attack.reconstruct(case.seen, seed, compute)
    return Timed(got=got, seconds=time.process_time() - begin)


def steps_within(make: Callable[..., Attack], case: Case, budget: float, seed: Seed, compute: Compute) -> int | None:
    """The steps of a search that take so many seconds, by the time of a few; None of what takes no steps."""
    if "steps" not in options_of(make):
        return None
    make(steps=FEW).check(case.seen)
    few = run_timed(make(steps=FEW), case, seed, compute).seconds
    if few * FEWEST > budget * FEW:  # not even the fewest fit, and timing more would take long
        return FEWEST
    few, more = (run_timed(make(steps=count), case, seed, compute).seconds for count in (FEW, MORE))
    each = max((more - few) / (MORE - FEW), 1e-6)
    return int(min(max((budget - few) / each + FEW, FEWEST), MOST))


def judge(
    case: Case, attack: str, images: Tensor, found: Tensor | None, seconds: float | None, steps: int | None = None
) -> Entry:
    """As an audit does: matched to the originals of each batch, what is no number counts as black."""
    truth, shown = victims(case), images.detach().float().cpu().nan_to_num(0, 0, 0).clamp(0, 1)
    matched = align(shown, truth, None if found is None else found.cpu()).images
    return Entry(
        attack=attack,
        psnr=peak_signal_to_noise(matched, truth).tolist(),
        ssim=structural_similarity(matched, truth).tolist(),
        rank=(count_ahead(matched, truth, case.gallery) + 1).tolist(),
        seconds=seconds,
        steps=steps,
    )


def judge_blank(case: Case) -> Entry:
    """One picture in the mean public color: what needs no update."""
    truth = victims(case)
    return judge(case, "blank", case.blank.expand(truth.shape), None, 0.0)
