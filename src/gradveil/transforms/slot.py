"""One slot of a policy with alternatives: every operation runs once, on all pictures that ask for it, each by its own
amount. So a policy of a hundred alternatives costs what one of fourteen does, the number of operations there are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradveil.transforms.library import Entry
from gradveil.transforms.operation import OPERATIONS


def through(images: Tensor, entries: Sequence[Entry | None], choice: Tensor, signs: Tensor) -> Tensor:
    """Pictures [N, C, H, W], each through the entry of the alternative that it drew; None leaves it as it is."""
    kinds = list(dict.fromkeys(entry.operation for entry in entries if entry is not None))
    kind = torch.tensor([0 if entry is None else 1 + kinds.index(entry.operation) for entry in entries])[choice]
    order = kind.argsort(stable=True)
    counts = kind.bincount(minlength=1 + len(kinds)).tolist()
    groups = images[order.to(images.device)].split(counts)
    amounts = amounts_of(entries, choice, signs)[order].to(images.device).split(counts)
    parts = [groups[0]]
    for name, group, amount in zip(kinds, groups[1:], amounts[1:], strict=True):
        parts.append(OPERATIONS[name].apply(group, amount) if len(group) else group)
    return torch.cat(parts)[order.argsort().to(images.device)]


def amounts_of(entries: Sequence[Entry | None], choice: Tensor, signs: Tensor) -> Tensor:
    """What each picture's operation is given, [N] in float64."""
    amount = torch.tensor([0.0 if entry is None else entry.amount for entry in entries], dtype=torch.float64)[choice]
    signed = torch.tensor([entry is not None and entry.is_signed for entry in entries])[choice]
    return torch.where(signed, amount * signs, amount)
