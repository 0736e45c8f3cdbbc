"""The whole curve in one pass, where the noise is normal and added: how many pictures are named at any strength."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradveil.calibrate.bench import Bench, Group
from gradveil.calibrate.family import Family
from gradveil.calibrate.gram import gram_of, least_noise, root_of
from gradveil.core.errors import NotApplicableError
from gradveil.core.law import Normal
from gradveil.core.strength import shorten
from gradveil.lineup.candidates import with_label
from gradveil.lineup.client import Client, Place
from gradveil.lineup.hold import Trial, prepare
from gradveil.lineup.make import Maker, Setting

DRAWS = 64  # of the noise, for each picture
FINE = 64  # strengths of the curve for each factor of ten
CLOSE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Additive:
    """A defense that adds normal noise last, `deviation` for a strength of 1, to what does not depend on it."""

    maker: Maker
    deviation: float


def find_additive(bench: Bench, family: Family, ladder: Sequence[Any]) -> Additive | None:
    """None where the noise is another one, where it is not all that is drawn, or where nothing is open."""
    if family.strength is None or not (family.strength.grows and ladder[0] > 0):
        return None
    each = [_guess(bench, family, value) for value in (ladder[0], ladder[-1])]
    sizes = [_deviation(*one) / value for one, value in zip(each, (ladder[0], ladder[-1]), strict=True)]
    makers = [guesser.maker for guesser, _ in each]
    same = makers[0].client.defense == makers[1].client.defense
    if not (same and sizes[0] > 0 and abs(sizes[0] - sizes[1]) <= CLOSE * sizes[0]):
        return None
    return Additive(maker=makers[0], deviation=sizes[0])


def _guess(bench: Bench, family: Family, value: Any) -> tuple[Any, bool]:
    client, place = Client.of(bench.scenario, family.build(value)), bench.groups[0].places[0]
    trial = Trial(place=place, row=None, picture=place.picture, updates=(), seeds=())
    guesser, kind, _ = prepare(client, trial, bench.gallery.images)
    return guesser, kind == "exact" and not guesser.views


def _deviation(guesser: Any, is_simple: bool) -> float:
    law = guesser.law
    return float(law.deviation) if is_simple and isinstance(law, Normal) and law.relative is None else 0.0


def strengths_of(ladder: Sequence[float]) -> list[float]:
    """Those of the curve, from the weakest to the strongest."""
    low, high = float(ladder[0]), float(ladder[-1])
    steps = round(FINE * torch.tensor(high / low).log10().item())
    return [shorten(low * (high / low) ** (step / steps)) for step in range(steps + 1)]


def count_named(additive: Additive, bench: Bench, group: Group, strengths: Sequence[float]) -> list[float]:
    """At each strength the number of the group's pictures that are named, in expectation over the noise."""
    noise = additive.deviation * torch.tensor(strengths, dtype=torch.float64)
    total = torch.zeros(len(strengths), dtype=torch.float64)
    for part in _parts(additive.maker, group):
        for least, chance in _each_picture(additive.maker, bench, part):
            named = len(least) - torch.searchsorted(least.sort().values, noise, right=True)
            total += chance * named / len(least)
    return total.tolist()


def _parts(maker: Maker, group: Group) -> Iterator[Group]:
    """The group where its places share what candidates make, else one place at a time."""
    first = setting_of(group.places[0])
    summed = maker.by_sum and len(first.members) == 1 and not maker.client.defense.acts_at("update")
    if summed or first.alone:
        yield group
        return
    for number, place in enumerate(group.places):
        yield Group(name=f"{group.name}-{number}", places=(place,), standins=() if number else group.standins)


def setting_of(place: Place) -> Setting:
    return Setting(place=place, columns=(0,), members=place.members)


def _each_picture(maker: Maker, bench: Bench, group: Group) -> Iterator[tuple[Tensor, float]]:
    """Of every picture in turn, the least noise at which it is not named, one for each draw."""
    gallery, own = bench.gallery.images, torch.stack([place.picture for place in group.places])
    images, setting = torch.cat([gallery, own]), setting_of(group.places[0])

    def rows(first: int, end: int) -> Tensor:
        made = maker.make(setting, maker.start(setting, with_label(images[first:end], setting.place.label)))
        return torch.cat([made[name].flatten(1) for name in made], 1)

    chunk = next(maker.chunks(len(images)))
    gram = gram_of(rows, len(images), chunk.stop - chunk.start, rows(0, 1)[0])
    if not gram.isfinite().all():
        raise NotApplicableError("the updates of some candidates are not finite")
    root, among = root_of(gram), torch.arange(len(gallery))
    for picture in (*group.standins, *range(len(gallery), len(images))):
        rng = bench.seed.at("noise", group.name, picture).rng()
        draws = torch.randn(len(images), DRAWS, generator=rng, dtype=torch.float64)
        yield least_noise(gram, root, picture, _rivals(among, picture, group, len(gallery)), draws)


def _rivals(among: Tensor, picture: int, group: Group, size: int) -> Tensor:
    """The others of the gallery and, for a stand-in, the picture whose place it takes."""
    others = among[among != picture]
    return others if picture >= size else torch.cat([others, torch.tensor([size])])
