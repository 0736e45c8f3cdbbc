"""Numbers of a story that bring its update nearest to the one received: Gauss and Newton, slopes by differences.

A network of ReLU has gradients that jump, and slopes at a point do not see the jumps. So the first differences are
wide, and become as narrow as the last step was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradveil.capture.causes.story import Evidence, Story, flatten

ROUNDS, HALVINGS = 24, 3
WIDE, SMALL, NARROWEST = 0.3, 0.1, 1e-3  # relative to a number, which counts as `SMALL` at least
ENOUGH = 0.05  # of the tolerance
Make = Callable[[Sequence[float]], Story]


def fit(make: Make, start: Sequence[float], evidence: Evidence, rounds: int = ROUNDS) -> tuple[list[float], float]:
    """The numbers and the relative error that is left; `make` turns numbers into a story."""
    best, error = list(start), evidence.error(make(start))
    widths = [WIDE * max(abs(value), SMALL) for value in best]
    for _ in range(rounds):
        if evidence.is_late or error < evidence.tolerance * ENOUGH:
            break
        step = _find_step(make, best, widths, evidence)
        found = _go(make, best, step, error, evidence)
        if found is None:
            widths = [width / 2 for width in widths]
            continue
        moved = max(abs(new - old) / max(abs(old), SMALL) for new, old in zip(found[0], best, strict=True))
        best, error = found
        widths = [min(max(moved, NARROWEST), WIDE) * max(abs(value), SMALL) for value in best]
    return best, error


def _go(
    make: Make, here: Sequence[float], step: Tensor, error: float, evidence: Evidence
) -> tuple[list[float], float] | None:
    """As far along the step as the error falls."""
    for halving in range(HALVINGS):
        trial = [value + float(move) / 2**halving for value, move in zip(here, step, strict=True)]
        found = evidence.error(make(trial))
        if found < error:
            return trial, found
    return None


def _find_step(make: Make, here: list[float], widths: Sequence[float], evidence: Evidence) -> Tensor:
    story = make(here)
    target = flatten(evidence.received(story.form))
    own = story.factor * flatten(evidence.play(story))
    columns = []
    for place, (value, width) in enumerate(zip(here, widths, strict=True)):
        moved = make([*here[:place], value + width, *here[place + 1 :]])
        columns.append((moved.factor * flatten(evidence.play(moved)) - own) / width)
    slopes = torch.stack(columns, 1)
    normal = slopes.T @ slopes
    ridge = 1e-10 * normal.diagonal().max().clamp_min(1e-300) * torch.eye(len(here), dtype=normal.dtype)
    step = torch.linalg.solve(normal + ridge, slopes.T @ (target - own))
    return step if step.isfinite().all() else torch.zeros_like(step)
