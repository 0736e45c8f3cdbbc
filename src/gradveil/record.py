"""One trial, one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["ok", "failed"]
Attacker = Literal["unaware", "adaptive"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """The result for one private picture. A failed trial has a reason and no score."""

    key: str  # scenario/defense/attack/attacker/client/example: what the trial is, and its identity on resume
    status: Status
    scenario: str
    defense: str
    attack: str
    attacker: Attacker
    client: str
    example: int
    seed: int
    seconds: float  # this trial's share of its batched run
    backend: str
    scores: dict[str, float] = field(default_factory=dict)
    loss: float | None = None  # what the attacker saw
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""  # why it failed
    images: str = ""  # file below images/ that holds original, fed and reconstructed of this client
