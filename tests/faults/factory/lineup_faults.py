"""Faults of the line-up, together with attacks that see nothing: nothing may read as "bounded" then either."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import torch

from factory.engine_faults import OBJECTIVE
from factory.fault import fault, has
from factory.patch import Patch
from factory.record_faults import Folder, blind
from gradveil.audit import lineup, lineup_plan  # noqa: F401  (patched by name)
from gradveil.experiment.record import Record
from gradveil.lineup.hold import Gallery

SEARCH = has("search", "-alone")
DEFENDED = has("-alone")
UPDATES, PLANNED, GALLERY = (
    "gradveil.audit.lineup._updates",
    "gradveil.audit.lineup_plan.without_copies_of",
    "gradveil.audit.lineup.gallery_of",
)


def stop_searches(patch: Patch) -> None:
    """What leaks must not hide the other fault."""

    def still(plain: Any, self: Any, z: Any) -> Any:
        total, match, grads = plain(self, z)
        return total, match, {name: 0 * g for name, g in grads.items()}

    patch.scope = "everywhere"
    patch.around(OBJECTIVE, still)


def change_line_up(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the updates of all clients of a defended line-up: of each client a list, round by round."""
    stop_searches(patch)

    def wrong(plain: Any, cell: Any) -> Any:
        updates = list(plain(cell))
        return updates if cell.defense.is_none else change(updates)

    patch.around(UPDATES, wrong, always=True)


@fault("line-up", "run", "the line-up gets the updates of other clients, and searches stand still", SEARCH)
def line_up_swapped(patch: Patch, rng: Random) -> None:
    by = rng.choice((1, 2))
    change_line_up(patch, lambda updates: [*updates[by:], *updates[:by]])


@fault("line-up", "run", "the line-up gets zeros for updates, and searches stand still", SEARCH)
def line_up_zeroed(patch: Patch, rng: Random) -> None:
    change_line_up(patch, lambda all_of: [[{n: 0 * u for n, u in one.items()} for one in own] for own in all_of])


@fault("line-up", "run", "the line-up gets updates times a number, and searches stand still", SEARCH)
def line_up_scaled(patch: Patch, rng: Random) -> None:
    factor = rng.choice((-1.0, 0.01, 100.0))
    change_line_up(patch, lambda all_of: [[{n: factor * u for n, u in one.items()} for one in own] for own in all_of])


@fault("line-up", "run", "the line-up gets noise for updates, and searches stand still", SEARCH)
def line_up_of_noise(patch: Patch, rng: Random) -> None:
    stream = torch.Generator().manual_seed(rng.randrange(2**31))

    def noise(u: Any) -> Any:
        drawn = torch.randn(u.shape, generator=stream).to(u)
        return drawn * u.norm() / drawn.norm()

    change_line_up(patch, lambda all_of: [[{n: noise(u) for n, u in one.items()} for one in own] for own in all_of])


@fault(
    "line-up", "run", "the gallery of the line-up is full of the victims' pictures, and searches stand still", SEARCH
)
def line_up_among_copies(patch: Patch, rng: Random) -> None:
    stop_searches(patch)

    def copies(plain: Any, audit: Any) -> Any:
        found = plain(audit)
        victims, labels = (x.flatten(0, 1) for x in audit.scenario.private)
        rows = torch.arange(len(found.images)) % len(victims)
        return Gallery(images=victims[rows], labels=labels[rows])

    patch.around(PLANNED, lambda plain, pictures, gallery: list(range(len(gallery))), always=True)
    patch.around(GALLERY, copies, always=True)


def of_line_up(record: Record) -> bool:
    return record.control == "lineup"


def rank_evenly(folder: Folder, rng: Random, which: Callable[[Record], bool], repeat: bool = False) -> None:
    """As a guesser would who looks at nothing; the same ranks for every picture if they `repeat`."""
    first: dict[str, list[int]] = {}

    def draw(record: Record) -> dict[str, list[int]]:
        most = record.ranks["candidates"][0]
        drawn = {n: [rng.randint(2, most) for _ in r] for n, r in record.ranks.items() if n.startswith("rank")}
        return {**record.ranks, **(first if repeat and first else drawn)}

    for place, record in enumerate(folder.records):
        if of_line_up(record) and which(record) and record.ranks:
            changed = draw(record)
            first = first or {name: ranks for name, ranks in changed.items() if name.startswith("rank")}
            folder.records[place] = replace(record, ranks=changed)


@fault(
    "line-up", "records", "the line-up guesses by nothing, with and without a defense; attacks see nothing", DEFENDED
)
def line_up_guesses(folder: Folder, rng: Random) -> None:
    blind(folder, lambda record: True)
    rank_evenly(folder, rng, lambda record: True)


@fault("line-up", "records", "a worker repeats the ranks of one picture for all; attacks see nothing", DEFENDED)
def line_up_repeats(folder: Folder, rng: Random) -> None:
    blind(folder, lambda record: True)
    rank_evenly(folder, rng, lambda record: record.defense == "d", repeat=True)


@fault("line-up", "records", "the line-up ranks every picture last; attacks see nothing", DEFENDED)
def line_up_inverted(folder: Folder, rng: Random) -> None:
    blind(folder, lambda record: True)
    for place, record in enumerate(folder.records):
        if of_line_up(record) and record.defense == "d" and record.ranks:
            most = record.ranks["candidates"][0]
            upside = {n: [most + 1 - r for r in ranks] for n, ranks in record.ranks.items() if n == "rank"}
            folder.records[place] = replace(record, ranks={**record.ranks, **upside})


@fault("line-up", "records", "records of the line-up that name a picture are lost; attacks see nothing", DEFENDED)
def line_up_names_lost(folder: Folder, rng: Random) -> None:
    blind(folder, lambda record: True)
    kept = rng.choice((0, 1))
    rank_evenly(folder, rng, lambda record: record.defense == "d" and int(record.client[-1]) % 2 == kept)
    folder.drop(lambda r: of_line_up(r) and r.defense == "d" and r.ranks.get("rank", [])[:1] == [1])


@fault("line-up", "records", "line-ups of the defense have failed; attacks see nothing", DEFENDED)
def line_up_failed(folder: Folder, rng: Random) -> None:
    blind(folder, lambda record: True)
    some = rng.choice((1, 2))
    rank_evenly(folder, rng, lambda record: record.defense == "d")
    folder.change(
        lambda r: of_line_up(r) and r.defense == "d" and int(r.client[-1]) % some == 0,
        status="failed",
        ranks={},
        reason="RuntimeError: lost",
    )


@fault("line-up", "records", "the control without a defense is lost, and ranks of the defense are drawn", DEFENDED)
def line_up_without_control(folder: Folder, rng: Random) -> None:
    blind(folder, lambda record: True)
    rank_evenly(folder, rng, lambda record: record.defense == "d")
    folder.drop(lambda r: of_line_up(r) and r.defense == "none")


@fault("line-up", "run", "the line-up takes the noise for much stronger than it is, and searches stand still", SEARCH)
def line_up_of_another_strength(patch: Patch, rng: Random) -> None:
    stop_searches(patch)
    factor = rng.choice((1e4, 1e5))

    def stronger(plain: Any, self: Any, round: Any) -> Any:
        law = plain(self, round)
        sizes = {name: factor * getattr(law, name) for name in ("deviation", "scale") if getattr(law, name, 0)}
        return replace(law, **sizes) if sizes else law

    for kind in ("_noise.AdditiveNoise", "dpsgd.Dpsgd"):
        patch.around(f"gradveil.defenses.{kind}.law", stronger, always=True)
