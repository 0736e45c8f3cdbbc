"""A defense at one strength after the other, each by a line-up, where no single pass tells of them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradveil.calibrate.bench import Bench, Group
from gradveil.core.defense import Defense
from gradveil.core.types import Update
from gradveil.lineup.client import Client, Place
from gradveil.lineup.hold import Kind, LineUp, Ranks


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the line-up of one group named: a list of trials for each of its places."""

    ranks: tuple[Ranks, ...]

    @property
    def kind(self) -> Kind:
        return self.ranks[0].kind


def hold_group(bench: Bench, group: Group, defense: Defense) -> Held:
    """Every place with its own picture; the first also with those that stand in, each with noise of its own."""
    first = _hold(bench, group.places[:1], defense, len(group.standins))
    others = _hold(bench, group.places[1:], defense, 0) if group.places[1:] else []
    return Held(ranks=(*first, *others))


def _hold(bench: Bench, places: Sequence[Place], defense: Defense, standins: int) -> list[Ranks]:
    seed = bench.seed.at("hold")
    client = Client.of(bench.scenario, defense)
    updates: list[list[Update]] = [[client.play(place, place.picture, seed).update] for place in places]
    lineup = LineUp(scenario=bench.scenario, defense=defense, gallery=bench.gallery, seed=seed, standins=standins)
    return lineup.hold(places, updates)


def search_ladder(ladder: Sequence[Any], is_enough: Callable[[Any], bool], curve: bool = True) -> None:
    """Try the strongest, then what halves the rest, so that the least that is enough is found.

    curve: where the strongest is not enough, try a few more
    """
    if not is_enough(ladder[-1]):
        for place in sorted({0, len(ladder) // 4, len(ladder) // 2, 3 * len(ladder) // 4}) if curve else ():
            is_enough(ladder[place])
        return
    low, high = -1, len(ladder) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(ladder[middle]) else (middle, high)
