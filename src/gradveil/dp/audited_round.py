"""What the noise of an audited round alone is worth: the epsilon that belongs to what the attacker of a scenario sees.

Nobody sampled the batch that is attacked, so nothing is credited for sampling, and a training of many rounds has more.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Scenario
from gradveil.dp.accountant import (
    epsilon_of,
    example_noise,
    identified_by,
    layers_of,
    noisy_part,
    say_identified,
)
from gradveil.dp.allowance import releases_in
from gradveil.dp.certificate import Certificate, Unit, refuse_certificate
from gradveil.dp.certify import depends_on_layers, name_event, strongest
from gradveil.dp.trade_off import CANDIDATES, chance

DELTA = 1e-5


def round_accounts(
    scenarios: Sequence[Scenario],
    defenses: Mapping[str, Defense],
    delta: float = DELTA,
    candidates: int = CANDIDATES,
) -> dict[str, dict[str, dict[str, str]]]:
    """By scenario and defense, of those that clip and noise examples. What a captured client did is not known.

    candidates: pictures among which the private one is sought, itself included
    """
    noisy = {label: one for label, one in defenses.items() if noisy_part(one) is not None}
    played = [scenario for scenario in scenarios if noisy and scenario.received is None]
    return {
        one.name: {label: account(one, defense, delta, candidates) for label, defense in noisy.items()}
        for one in played
    }


def uses_of(scenario: Scenario) -> int:
    """Noisy steps that one example can be in, in all rounds that the attacker joins up."""
    pictures = scenario.private.images.shape[1] // scenario.aggregate
    return scenario.threat.rounds * releases_in(scenario.training, pictures)


def account(scenario: Scenario, defense: Defense, delta: float = DELTA, candidates: int = CANDIDATES) -> dict[str, str]:
    """What is `said` in a few words, and what it is `of`."""
    uses, rounds = uses_of(scenario), scenario.threat.rounds
    layers = layers_of(defense.model(copy.deepcopy(scenario.model)))
    try:
        found = epsilon_of(defense, layers=layers, sampling_rate=1.0, steps=uses, delta=delta)
    except ConfigError as error:
        return {"said": "not accounted", "of": str(error)}
    alone = "this round alone" if rounds == 1 else f"these {rounds} rounds alone"
    named = identified_by(example_noise(defense, layers), 1.0, uses, kappa=chance(candidates))
    means = "" if _beside_the_noise(scenario, defense) else f"{say_identified(named, candidates)}; "
    steps = "1 noisy step" if uses == 1 else f"{uses} noisy steps"
    return {
        "said": f"epsilon {found.value:.4g}",
        "of": f"{means}{alone}, RDP, delta {delta:g}, an example in {steps}, no sampling",
    }


def round_certificates(
    scenarios: Sequence[Scenario], defenses: Mapping[str, Defense], candidates: int = CANDIDATES
) -> dict[str, dict[str, Certificate]]:
    """By scenario and defense, of one attack. What a captured client did is not known, so it has none."""
    played = [scenario for scenario in scenarios if scenario.received is None]
    return {
        one.name: {label: certify_round(one, defense, candidates) for label, defense in defenses.items()}
        for one in played
    }


def certify_round(scenario: Scenario, defense: Defense, candidates: int = CANDIDATES) -> Certificate:
    """The most that any server identifies of what it sees in this scenario, in all rounds that it joins up."""
    kappa, event = chance(candidates), name_event(candidates)
    layers = layers_of(defense.model(copy.deepcopy(scenario.model))) if depends_on_layers(defense) else 1
    releases: dict[Unit, int] = {"example": uses_of(scenario), "client": scenario.threat.rounds}
    found = strongest(defense, layers, kappa, releases)
    if found.holds and (beside := _beside_the_noise(scenario, defense)):
        found = refuse_certificate(beside, kappa)
    return found.at(kappa, event=event)


def _beside_the_noise(scenario: Scenario, defense: Defense) -> str:
    """What the server of this scenario knows, sees or may do that the noise does not cover."""
    if scenario.chosen:
        return "the pictures were chosen for being unusual, so guessing may name them more often"
    if scenario.training.batchnorm == "batch-shared":
        return "BatchNorm statistics leave beside the update without noise"
    if scenario.threat.sees_encodings and defense.acts_at("data"):
        return "the encoded pictures are published without noise"
    if scenario.threat.may_plant and depends_on_layers(defense):
        return "each layer is clipped by itself, and a malicious server may add layers"
    return ""
