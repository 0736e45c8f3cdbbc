"""Which noise of a defense an epsilon can speak of, and what it is worth for one example.

Of a stack the outermost `dpsgd` or `fedcdp` counts: whatever is inside of it is clipped, and what acts on the update
later only sees what was noised already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from gradveil.accounting.epsilon import Accountant, Epsilon
from gradveil.client import parameters_of
from gradveil.defenses.base import Defense
from gradveil.defenses.dpsgd import Dpsgd
from gradveil.defenses.fedcdp import FedCdp
from gradveil.defenses.per_example import layer_of
from gradveil.defenses.stack import Stack
from gradveil.errors import ConfigError

Noisy = Dpsgd | FedCdp


def parts_of(defense: Defense) -> Iterator[Defense]:
    """From the innermost to the outermost."""
    if isinstance(defense, Stack):
        for one in defense.defenses:
            yield from parts_of(one)
    else:
        yield defense


def noisy_part(defense: Defense) -> Noisy | None:
    """The part that clips and adds noise last; None: no epsilon can be named."""
    found = [part for part in parts_of(defense) if isinstance(part, Noisy)]
    return found[-1] if found else None


def spent(
    defense: Defense, *, layers: int, sampling_rate: float, steps: int, delta: float, accountant: Accountant = "rdp"
) -> Epsilon:
    """The epsilon of so many noisy steps. ConfigError if the noise does not cover all that one example can move.

    `layers` is of the model that is shared, see `layers_of`.
    """
    part = noisy_part(defense)
    if part is None:
        raise ConfigError("accounting: the defense clips and noises no example's gradient, take dpsgd or fedcdp")
    _refuse_uncovered(defense, part)
    if defense.copies > 1 and part.snr is None:  # one example is clipped once for each copy of it
        part = replace(part, noise=part.noise / defense.copies)
    budget = {"sampling_rate": sampling_rate, "rounds": steps, "delta": delta, "accountant": accountant}
    return part.epsilon(**budget) if isinstance(part, Dpsgd) else part.epsilon(layers=layers, **budget)


def layers_of(model: nn.Module) -> int:
    """As `fedcdp` clips them: a weight and its bias are one."""
    return len({layer_of(name) for name in parameters_of(model)})


def _refuse_uncovered(defense: Defense, part: Noisy) -> None:
    parts = list(parts_of(defense))
    last = max(number for number, one in enumerate(parts) if one is part)
    for number, one in enumerate(parts):
        name = type(one).__name__.lower()
        if one.mixes:
            raise ConfigError(f"accounting: {name} mixes pictures, so one example moves more than one clipped gradient")
        if number > last and one.acts_at("gradient"):
            raise ConfigError(f"accounting: {name} goes around the noise and looks at the pictures again, put it first")
