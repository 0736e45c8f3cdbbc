"""One trial, one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

NO_TRUTH, NOT_REPLAYED = "no-truth", "not-replayed"  # flags that a verdict looks at
Status = Literal["ok", "failed"]
Attacker = Literal["unaware", "adaptive"]
# what a trial is compared with: "" is a trial of the audit itself
#   prior: the attack without the update; random: it is given noise for an update; another: its reconstruction of
#   another client's picture; doubled: it is given twice the steps
#   lineup: no attack, but the best guess among candidates
Control = Literal["", "prior", "random", "another", "doubled", "lineup"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """The result for one private picture. A failed trial has a reason and no score."""

    key: str  # scenario/defense/attack/attacker or control/client/example: what the trial is, its identity on resume
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
    control: Control = ""
    blank: float | None = None  # dB between the original and a picture of the mean color of what is public
    floors: dict[str, float] = field(default_factory=dict)  # by score, what is reached without this picture's update
    # where the defense feeds another picture: whether that one still finds the private one in the gallery ("linked"),
    # and how often a picture does that tells nothing of it ("chance")
    fed: dict[str, float] = field(default_factory=dict)
    images: str = ""  # file below images/ that holds original, fed and reconstructed of this client
    # how much of the update a client of the attacker's own explains (1: all of it), fed with the reconstruction and
    # with the truth; `again` with the same pictures and new draws of the defense, on an update that no attack has seen
    explained: dict[str, float] = field(default_factory=dict)
    # of a line-up: by name the ranks of the picture that was used, 1 is named, one for each trial; see `audit.lineup`
    ranks: dict[str, list[int]] = field(default_factory=dict)

    @property
    def has_truth(self) -> bool:
        """Whether there was an original to compare with: of a captured round there may be none."""
        return NO_TRUTH not in self.flags
