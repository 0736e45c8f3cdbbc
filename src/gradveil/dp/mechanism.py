"""Which noise of a defense an epsilon can speak of, and what it is worth for one example.

Of a stack the outermost `dpsgd` or `fedcdp` counts: whatever is inside of it is clipped, and what acts on the update
later only sees what was noised already.
"""

from __future__ import annotations

from torch import nn

from gradveil.core.client import parameters_of
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.defenses._per_example import layer_of
from gradveil.dp.accountant import Accountant, Epsilon, epsilon


def noisy_part(defense: Defense) -> Defense | None:
    """The part that clips and adds noise last; None: no epsilon can be named."""
    found = [part for part in defense.parts if part.noises_examples]
    return found[-1] if found else None


def spent(
    defense: Defense, *, layers: int, sampling_rate: float, steps: int, delta: float, accountant: Accountant = "rdp"
) -> Epsilon:
    """The epsilon of so many noisy steps. ConfigError if the noise does not cover all that one example can move.

    `layers` is of the model that is shared, see `layers_of`.
    """
    part = noisy_part(defense)
    noise = None if part is None else part.noise_multiplier(layers)
    if part is None or noise is None:
        raise ConfigError("accounting: the defense clips and noises no example's gradient, take dpsgd or fedcdp")
    _refuse_uncovered(defense, part)
    noise /= defense.copies  # one example is clipped once for each copy of it
    return epsilon(noise=noise, sampling_rate=sampling_rate, rounds=steps, delta=delta, accountant=accountant)


def layers_of(model: nn.Module) -> int:
    """As `fedcdp` clips them: a weight and its bias are one."""
    return len({layer_of(name) for name in parameters_of(model)})


def _refuse_uncovered(defense: Defense, part: Defense) -> None:
    last = max(number for number, one in enumerate(defense.parts) if one is part)
    for number, one in enumerate(defense.parts):
        name = type(one).__name__.lower()
        if one.mixes:
            raise ConfigError(f"accounting: {name} mixes pictures, so one example moves more than one clipped gradient")
        if number > last and one.acts_at("gradient"):
            raise ConfigError(f"accounting: {name} goes around the noise and looks at the pictures again, put it first")
