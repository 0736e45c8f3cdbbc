"""Runs made by hand: records as an audit would write them, and what a verdict must read off them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

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
    records = tuple(one for group in groups for one in group)
    config = {
        "seed": 0,
        "scenario": {"attacker": "curious", "labels": "known", "batch_size": 1, "local_steps": 1},
        "defense": {"none": {"name": "none"}, "d": {"name": "gaussian", "scale": 0.1}},
        "attack": {"a": {"name": "dlg", "steps": 10, "restarts": 2}},
    }
    origin = {"scenarios": ROLES if roles is None else roles, "gallery": gallery, **provenance}
    return Run(folder=Path("run"), name="run", records=records, config=config, provenance=origin)
