"""What was filled in or understood by itself, said once on the error stream."""

from __future__ import annotations

import sys
from functools import cache


@cache
def say_once(message: str) -> None:
    """A model is made several times in a run: one line is enough."""
    print(message, file=sys.stderr)
