"""What a policy drew for each picture."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Draw(NamedTuple):
    """For every picture the alternative that it goes through, and the sign of each of its slots.

    It stays on the CPU wherever the pictures are: to ask a GPU which pictures go where would make everybody wait.
    """

    choice: Tensor  # [count], whole numbers
    signs: Tensor  # [count, slots], -1 or 1, of every slot: those that have no sign do not look at it
