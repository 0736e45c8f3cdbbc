"""What was read, as a reconstruction."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gradveil.attacks.imprint.insertion import Place
from gradveil.attacks.imprint.readout import Read, labels_of
from gradveil.core.attack import Reconstruction
from gradveil.core.observation import Observation

BLANK = 0.5  # mid-gray where nothing was read


def reconstruction(seen: Observation, reads: Sequence[Read], place: Place, notes: tuple[str, ...]) -> Reconstruction:
    """`loss` is the share of the pictures that were not found."""
    found = torch.stack([read.found for read in reads])
    pictures = place.pictures(torch.stack([read.inputs for read in reads])).clamp(0, 1)
    sound = torch.tensor([read.sound for read in reads], device=found.device)
    loss = 1 - found.to(pictures).mean(-1)
    return Reconstruction(
        images=torch.where(found[..., None, None, None], pictures, BLANK),
        labels=labels_of(seen),
        found=found,
        loss=loss.masked_fill(~sound, torch.nan),
        notes=(*notes, *doubts(seen)),
    )


def counted(reads: Sequence[Read]) -> str:
    """`3 to 8` or `8`: how many bins or units held anything."""
    low, high = min(r.filled for r in reads), max(r.filled for r in reads)
    return str(low) if low == high else f"{low} to {high}"


def doubts(seen: Observation) -> tuple[str, ...]:
    if seen.training.steps > 1:
        return ("several local steps: the planted layer moves between them, so fewer pictures are read exactly",)
    return ()
