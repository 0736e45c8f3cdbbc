"""Which view of a known policy each client drew: every one is tried in a short search, and the best match is kept.

Each picture of a batch has drawn its own. They are first tried with one view for all of them; then each is tried
through every view while the others keep theirs, and all change to their best at once, up to three times. That is
views x pictures searches a round, where all combinations would be views ** pictures.
All guesses of a client start from the same point and have the same weight of each prior; nothing depends on who else
is there. Shifts and turns leave a border that gives them away; a gain does not, and is guessed less surely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from gradveil.core.knowledge import View
from gradveil.engine.priors.group import GroupConsistency
from gradveil.engine.priors.prior import Prior
from gradveil.engine.spaces.unknown_view import Guess, Guesses

Scout = Callable[[Guesses], Tensor]  # to the match of every guess, [client, guess]; as many guesses for each client

SHARE = 8  # of the full search's steps, one in so many
FEWEST = 100  # steps in which a picture begins to show
SHOWN = 16  # views that a note names
ROUNDS = 3  # at most, of one picture after the other


def likeliest(
    scout: Scout, names: Sequence[str], views: tuple[View, ...], examples: int
) -> tuple[Guesses, tuple[str, ...]]:
    """The best guess of every client, and a note of what was tried and chosen."""
    best = dict.fromkeys(names, (0,) * examples)
    if len(views) > 1:
        best = _with_one_for_all(scout, names, len(views), examples)
    for _ in range(ROUNDS if len(views) > 1 and examples > 1 else 0):
        before, best = best, _picture_by_picture(scout, names, best, len(views))
        if best == before:  # who has come to rest stays there
            break
    return {name: (guess,) for name, guess in best.items()}, (_told(best, views),)


def _with_one_for_all(scout: Scout, names: Sequence[str], views: int, examples: int) -> dict[str, Guess]:
    alike = tuple((number,) * examples for number in range(views))
    lowest = _lowest(scout(dict.fromkeys(names, alike))).tolist()
    return {name: alike[place] for name, place in zip(names, lowest, strict=True)}


def _picture_by_picture(scout: Scout, names: Sequence[str], best: Mapping[str, Guess], views: int) -> dict[str, Guess]:
    """Each picture through every view while the others keep theirs; then all change to their best at once."""
    match = scout({name: tuple(_changed(guess, views)) for name, guess in best.items()})
    lowest = _lowest(match.unflatten(1, (-1, views))).tolist()
    return {name: tuple(row) for name, row in zip(names, lowest, strict=True)}


def _lowest(match: Tensor) -> Tensor:
    """A search that broke down is no match."""
    return match.nan_to_num(nan=float("inf")).argmin(-1)


def _told(best: Mapping[str, Guess], views: tuple[View, ...]) -> str:
    drawn = Counter(views[number].name for guess in best.values() for number in guess).most_common()
    each = ", ".join(f"{name} ({often}x)" for name, often in drawn[:SHOWN])
    more = f" and {len(drawn) - SHOWN} others" if len(drawn) > SHOWN else ""
    return f"{len(views)} views of the known policy tried, chosen: {each}{more}"


def _changed(guess: Guess, views: int) -> list[Guess]:
    return [(*guess[:place], view, *guess[place + 1 :]) for place in range(len(guess)) for view in range(views)]


def steps_of(steps: int) -> int:
    """Of a scouting search."""
    return min(steps, max(FEWEST, steps // SHARE))


def alone(priors: tuple[Prior, ...]) -> tuple[Prior, ...]:
    """The priors of one start: the middle one of several weights, and no other start to agree with."""
    return tuple(_of_one_weight(prior) for prior in priors if not isinstance(prior, GroupConsistency))


def _of_one_weight(prior: Any) -> Prior:
    weight = getattr(prior, "weight", None)
    return replace(prior, weight=sorted(weight)[len(weight) // 2]) if isinstance(weight, tuple) else prior
