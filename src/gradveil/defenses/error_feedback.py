"""Error feedback (Seide et al., 2014; Karimireddy et al., 2019): what was not sent is added to the next update.

For training with a defense that loses much, such as top-k or the sign. What the client remembers is passed in and out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator

from gradveil.core.defense import Defense
from gradveil.core.types import Update


@dataclass(frozen=True)
class ErrorFeedback:
    """A defense at stage `update` with a memory: all that was sent and the residual are the sum of all updates.

    >>> from gradveil.defenses.topk import TopK
    >>> from gradveil.core.seeds import Seed
    >>> feedback, update = ErrorFeedback(TopK(keep=0.5)), {"w": torch.tensor([4.0, 3.0])}
    >>> sent, residual = feedback.step(update, feedback.start(update), Seed(0).rng())
    >>> sent["w"].tolist(), residual["w"].tolist()
    ([4.0, 0.0], [0.0, 3.0])
    """

    defense: Defense

    def start(self, update: Update) -> Update:
        """What a client remembers before its first round: nothing."""
        return {name: torch.zeros_like(u) for name, u in update.items()}

    def step(self, update: Update, residual: Update, rng: Generator) -> tuple[Update, Update]:
        """What is sent in this round, and what is to be remembered for the next."""
        owed = {name: u + residual[name] for name, u in update.items()}
        sent = self.defense.update(owed, rng)
        return sent, {name: u - sent[name] for name, u in owed.items()}
