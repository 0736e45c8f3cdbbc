"""What the noise of an audited round alone is worth: the epsilon that belongs to what the attacker of a scenario sees.

Nobody sampled the batch that is attacked, so nothing is credited for sampling, and a training of many rounds has more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario
from gradveil.dp.accountant import epsilon_of, layers_of, noisy_part

DELTA = 1e-5


def round_accounts(
    scenarios: Sequence[Scenario], defenses: Mapping[str, Defense], delta: float = DELTA
) -> dict[str, dict[str, dict[str, str]]]:
    """By scenario and defense, of those that clip and noise examples. What a captured client did is not known."""
    noisy = {label: one for label, one in defenses.items() if noisy_part(one) is not None}
    played = [scenario for scenario in scenarios if noisy and scenario.received is None]
    return {one.name: {label: account(one, defense, delta) for label, defense in noisy.items()} for one in played}


def uses_of(scenario: Scenario) -> int:
    """Noisy steps that one example can be in, in all rounds that the attacker joins up."""
    pictures = scenario.private.images.shape[1] // scenario.aggregate
    size = min(scenario.training.batch_size or pictures, pictures)
    return scenario.threat.rounds * math.ceil(scenario.training.steps / math.ceil(pictures / size))


def account(scenario: Scenario, defense: Defense, delta: float = DELTA) -> dict[str, str]:
    """What is `said` in a few words, and what it is `of`."""
    uses, rounds = uses_of(scenario), scenario.threat.rounds
    layers = layers_of(defense.model(copy.deepcopy(scenario.model)))
    try:
        found = epsilon_of(defense, layers=layers, sampling_rate=1.0, steps=uses, delta=delta)
    except ConfigError as error:
        return {"said": "not accounted", "of": str(error)}
    alone = "this round alone" if rounds == 1 else f"these {rounds} rounds alone"
    steps = "1 noisy step" if uses == 1 else f"{uses} noisy steps"
    return {
        "said": f"epsilon {found.value:.4g}",
        "of": ("vacuous; " if found.vacuous else "")
        + f"{alone}, RDP, delta {delta:g}, an example in {steps}, no sampling",
    }
