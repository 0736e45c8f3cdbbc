"""From a defense to its certificate: which noise covers what one picture, or one client, can move."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

from torch import nn

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.defenses import parse_defense
from gradveil.dp.accountant import example_noise, layers_of, noisy_part
from gradveil.dp.certificate import Certificate, Neighbors, Unit, certify_gaussian, refuse_certificate
from gradveil.dp.trade_off import CANDIDATES, chance


def certificate(
    defense: Defense | str,
    *,
    model: nn.Module | None = None,
    layers: int | None = None,
    candidates: int = CANDIDATES,
    attacks: int = 1,
    top: int = 1,
    rounds: int = 1,
    steps: int = 1,
    pictures: int = 1,
    neighbors: Neighbors = "add-remove",
) -> Certificate:
    """The most that any server identifies under this defense. One without a certificate has `at_most` 1 and a `reason`.

    >>> print(certificate("dpsgd:noise=0.5"))
    at most 13.8 % identified among 1,001 candidates (random guessing: 0.1 %); per example, 1 noisy release
    >>> print(certificate("gaussian:scale=0.5"))
    no certificate: gaussian adds noise to an update that nothing clips, put clip right before it in a stack

    defense: a defense, or its text as on the command line
    model: the model that is shared; `fedcdp` clips each of its layers by itself
    layers: their number, in place of the model
    candidates: pictures among which the private one is sought, itself included; with a known label, those of its class
    attacks: how many attacks name a picture each, if it counts that one of them is right
    top: how many pictures an attack may name
    rounds: rounds that the attacker joins up
    steps: noisy local steps of one round that the same picture is in
    pictures: of one person, if the bound is to hold for all of them together
    neighbors: `add-remove`, or `replace-one` for the stricter comparison with another picture in its place
    """
    for key, count in (("rounds", rounds), ("steps", steps)):
        if count < 1 or count != int(count):
            raise ConfigError(f"must be a whole number of 1 or more, got {count}", key=key)
    kappa = chance(candidates, attacks, top)
    built = parse_defense(defense) if isinstance(defense, str) else defense
    releases: dict[Unit, int] = {"example": rounds * steps, "client": rounds}
    found = strongest(built, _layers(built, model, layers), kappa, releases, pictures, neighbors)
    return found.at(kappa, event=name_event(candidates, attacks, top))


def strongest(
    defense: Defense,
    layers: int,
    kappa: float,
    releases: Mapping[Unit, int],
    pictures: int = 1,
    neighbors: Neighbors = "add-remove",
) -> Certificate:
    """The better one of the two units; a client's also holds for each of its pictures.

    releases: by unit, the noisy steps that one picture is in, and the noised updates that one client sends
    """
    noises, reasons = find_noises(defense, layers)
    found = [
        certify_gaussian(
            sigma=sigma,
            kappa=kappa,
            releases=releases[unit],
            pictures=pictures if unit == "example" else 1,
            neighbors=neighbors,
            unit=unit,
        )
        for unit, sigma in noises.items()
    ]
    return min(found, key=lambda one: one.at_most) if found else refuse_certificate(reasons[0], kappa)


def find_noises(defense: Defense, layers: int) -> tuple[dict[Unit, float], list[str]]:
    """The noise by the most that a unit can move, of each unit that it covers, and why it does not cover the others."""
    noises: dict[Unit, float] = {}
    reasons: list[str] = []
    finders: dict[Unit, Callable[[], float]] = {"client": lambda: client_noise(defense)}
    if noisy_part(defense) is not None:
        finders = {"example": lambda: example_noise(defense, layers), **finders}
    for unit, find in finders.items():
        try:
            noises[unit] = find()
        except ConfigError as error:
            reasons.append(str(error))
    return noises, reasons


def client_noise(defense: Defense) -> float:
    """The noise on an update by the most that the whole update can measure. ConfigError if nothing bounds that.

    What changes the update between clip and noise could make it longer again, so the noise comes right after the clip.
    """
    longest: float | None = None
    unclipped = ""
    for part in (part for part in defense.parts if part.acts_at("update")):
        if part.update_noise is not None and longest is not None:
            return part.update_noise / longest
        unclipped = unclipped or (type(part).__name__.lower() if part.update_noise is not None else "")
        longest = part.longest
    if unclipped:
        raise ConfigError(
            f"{unclipped} adds noise to an update that nothing clips, put clip right before it in a stack"
        )
    raise ConfigError(
        "no noise of a fixed size is added to a clipped gradient or update, take dpsgd, fedcdp, or clip and gaussian "
        "in a stack"
    )


def name_event(candidates: int, attacks: int = 1, top: int = 1) -> str:
    """What happens with the chance that a certificate bounds."""
    nearest = f" as one of {top}" if top > 1 else ""
    several = f" by one of {attacks} attacks" if attacks > 1 else ""
    return f"identified{nearest} among {candidates:,} candidates{several}"


def depends_on_layers(defense: Defense) -> bool:
    """Whether its noise is worth less the more layers there are. One whose noise has no fixed size is no matter."""
    part = noisy_part(defense)
    try:
        return part is not None and part.noise_multiplier(1) != part.noise_multiplier(2)
    except ConfigError:
        return False


def _layers(defense: Defense, model: nn.Module | None, layers: int | None) -> int:
    if model is not None:
        return layers_of(defense.model(copy.deepcopy(model)))
    if layers is not None:
        if layers < 1:
            raise ConfigError(f"must be 1 or more, got {layers}", key="layers")
        return layers
    if depends_on_layers(defense):
        raise ConfigError("is missing: the defense clips layer by layer, give the model or its layers", key="model")
    return 1
