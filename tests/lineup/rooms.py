"""Small line-ups: a linear model on pictures of 8 x 8 pixels, among candidates of four classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from toys import CLASSES, pictures, scenario

from gradveil.core.defense import Defense
from gradveil.core.seeds import Seed
from gradveil.lineup.candidates import Gallery
from gradveil.lineup.client import Client, places_of
from gradveil.lineup.hold import LineUp, Ranks


def gallery_of(count: int, seed: int = 1) -> Gallery:
    return Gallery(images=pictures(count, seed), labels=torch.eye(CLASSES)[torch.arange(count) % CLASSES])


def hold(
    defense: Defense | None = None,
    *,
    clients: int = 4,
    examples: int = 1,
    gallery: Gallery | None = None,
    standins: int = 0,
    seed: int = 0,
    **changes: Any,
) -> list[Ranks]:
    """Of clients who sent what they would send."""
    played = replace(scenario(clients, examples), **changes)
    lineup = LineUp(scenario=played, defense=defense or Defense(), gallery=gallery or gallery_of(19), seed=Seed(seed),
                    standins=standins)  # fmt: skip
    client = Client.of(played, lineup.defense)
    places = [place for number in range(clients) for place in places_of(played, number)]
    return lineup.hold(places, [[client.play(place, place.picture, Seed(seed)).update] for place in places])


def trials_of(found: list[Ranks]) -> list[int]:
    return [rank for one in found for rank in one.ranks]
