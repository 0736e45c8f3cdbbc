"""What would fail every trial of an attack, or every score, is bad input: better said before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradveil.audit.plan import UNDEFENDED
from gradveil.audit.tuning import check_not_tuned_on
from gradveil.core.client import in_client_mode
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.core.scenario import Scenario
from gradveil.experiment.parallel.pool import Pool
from gradveil.generators.provenance import check_not_trained_on

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit

MISSING = {  # by what an attack requires
    "malicious": "modifies the model, which a curious attacker may not do, use `attacker = malicious`",
    "mixture": "no defense here mixes pictures, add one (mixup) or leave this attack out",
    "views": "no defense here has a policy to know, add one (ats) or leave this attack out",
}


def check(audit: Audit, compute: Compute) -> None:
    """The audit and the machine, before anything is computed or written."""
    _check_parts(audit)
    Pool.of(compute).check(compute.device)
    _check_attacks(audit)
    for scenario in (audit.scenario, *audit.also):
        _check_scenario(audit, scenario)
    _check_metrics(audit)


def networks(audit: Audit) -> list[str]:
    """Files that attacks bring along, each once. Only here are they held against the truth; attacks never see it."""
    return sorted({file for attack in audit.attacks.values() for file in attack.networks()})


def _check_parts(audit: Audit) -> None:
    for kind, parts in (("defense", audit.defenses), ("attack", audit.attacks), ("metrics", audit.metrics)):
        if not parts:
            raise ConfigError(f"{kind}: none is given, give at least one")
    if not audit.defenses.get(UNDEFENDED, Defense()).is_none:
        raise ConfigError(f"defense.{UNDEFENDED}: is the label of the undefended model, choose another label")


def _check_attacks(audit: Audit) -> None:
    offers = frozenset().union(*(defense.knowledge().offers for defense in audit.defenses.values()))
    if audit.scenario.threat.may_plant:
        offers |= {"malicious"}
    for label, attack in audit.attacks.items():
        for missing in sorted(attack.requires - offers):
            raise ConfigError(MISSING[missing], key=f"attack.{label}")


def _check_scenario(audit: Audit, scenario: Scenario) -> None:
    model = in_client_mode(scenario.model, scenario.training)
    for defense in audit.defenses.values():
        defense.bind(scenario).check(model)
    if not scenario.private.images.isfinite().all():
        raise ConfigError(f"scenario {scenario.name}: a private picture has pixels that are not finite")
    _check_models(audit, scenario)
    for file in networks(audit) if scenario.has_truth else ():
        check_not_trained_on(file, scenario.private.images)
    for source in audit.tuned_on if scenario.has_truth else ():
        check_not_tuned_on(source, scenario.private.images)


def _check_models(audit: Audit, scenario: Scenario) -> None:
    """Whether attacks that modify the model can modify this one: what cannot be done there fails in every trial."""
    channels, height, width = scenario.private.images.shape[-3:]
    for label, attack in audit.attacks.items():
        try:
            attack.check_model(scenario.model, (channels, height, width))
        except NotApplicableError as error:
            raise ConfigError(error.message, key=f"attack.{label}") from error


def _check_metrics(audit: Audit) -> None:
    images, labels = (x[:1, :1].float().cpu() for x in audit.scenario.private)
    for metric in audit.metrics:
        tried = images if metric.about == "pictures" else labels
        metric.score(tried, tried)
