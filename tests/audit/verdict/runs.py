"""Runs made by hand: records as an audit would write them, and what a verdict must read off them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from plans import plan_of, with_doubled

from gradveil.audit.results import Run
from gradveil.experiment.record import Record

BLANK, SEEN, UNSEEN = 12.0, 25.0, 11.0
ROLES = {"easy": {"role": "audited", "regime": "diagnostic", "batch_size": 1, "labels": "known"}}


def record(client: int, **changes: Any) -> Record:
    """An undefended picture that leaked, unless told otherwise."""
    fields = {
        "status": "ok",
        "scenario": "easy",
        "defense": "none",
        "attack": "a",
        "attacker": "unaware",
        "client": f"c{client:04d}",
        "example": 0,
        "seed": 0,
        "seconds": 1.0,
        "backend": "toy",
        "scores": {"psnr": SEEN, "retrieval": 1.0},
        "blank": BLANK,
        "loss": 0.1,
        "explained": {"reconstruction": 0.9, "truth": 1.0},
        **changes,
    }
    made = Record(key="", **fields)
    kind = made.control or made.attacker
    key = "/".join([made.scenario, made.defense, made.attack, kind, made.client, str(made.example)])
    return replace(made, key=key)


def hidden(client: int, **changes: Any) -> Record:
    """A picture of which nothing was seen."""
    return record(client, scores={"psnr": UNSEEN, "retrieval": 0.0}, **changes)


def failed(client: int, **changes: Any) -> Record:
    return record(client, status="failed", scores={}, loss=None, reason="NaN at step 3", **changes)


def undefended(count: int, leaking: int | None = None) -> list[Record]:
    leaking = count if leaking is None else leaking
    return [record(i) if i < leaking else hidden(i) for i in range(count)]


def defended(count: int, *, make=hidden, defense: str = "d") -> list[Record]:
    """By both attackers."""
    return [make(i, defense=defense, attacker=who) for who in ("unaware", "adaptive") for i in range(count)]


def run_of(*groups: list[Record], roles: Any = None, gallery: int = 999, **provenance: Any) -> Run:
    """A run with the convergence check of attack `a`, for which all undefended trials of the first group stand."""
    records = [one for group in groups for one in group]
    if not any(one.control == "doubled" for one in records):
        records = with_doubled(records)
    config = {
        "seed": 0,
        "scenario": {"attacker": "curious", "labels": "known", "batch_size": 1, "local_steps": 1},
        "defense": {"none": {"name": "none"}, "d": {"name": "gaussian", "scale": 0.1}},
        "attack": {"a": {"name": "dlg", "steps": 10, "restarts": 2}},
    }
    origin = {"scenarios": ROLES if roles is None else roles, "gallery": gallery, "plan": plan_of(records)}
    return Run(folder=Path("run"), name="run", records=tuple(records), config=config, provenance=origin | provenance)


CANDIDATES = 1001


def lined_up(client: int, ranks: list[int] | None = None, *, another: int = 400, **changes: Any) -> Record:
    """The line-up of one picture: the ranks of its own and of stand-ins for it; all named, unless told otherwise."""
    own = [1] * 10 if ranks is None else ranks
    plain = {"candidates": [CANDIDATES], "rank": own, "rank-jpeg": own, "rank-resized": own, "rank-brighter": own,
             "rank-in-class": own, "candidates-in-class": [90], "rank-of-another": [another + client]}  # fmt: skip
    fields = {"defense": "none", "attack": "line-up", "attacker": "adaptive", "control": "lineup"}
    rest = {"scores": {}, "loss": None, "blank": None, "explained": {}, "ranks": plain}
    return record(client, **(fields | rest | changes))


def line_up(count: int, defense: str = "none", ranks: list[list[int]] | None = None, **changes: Any) -> list[Record]:
    """Of every picture; without ranks all are named."""
    given = [None] * count if ranks is None else ranks
    return [lined_up(i, own, defense=defense, **changes) for i, own in enumerate(given)]


def even_ranks(count: int, trials: int = 10, candidates: int = CANDIDATES) -> list[list[int]]:
    """As of a guesser who knows nothing: evenly spread, none named."""
    number = count * trials
    spread = [2 + (candidates - 3) * at // number for at in range(number)]
    return [spread[at::count] for at in range(count)]
