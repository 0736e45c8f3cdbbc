"""What a number rests on: who the attacker is, what is assumed, and what nobody tried."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradveil.report.run import Run

NOT_STATED = "Not stated; treat it as known to the attacker"
MEANINGS: dict[str, dict[Any, str]] = {
    "attacker": {
        "curious": "Honest-but-curious server: it reads every update and changes nothing",
        "malicious": "Malicious server: it may change the model before it sends it",
    },
    "labels": {
        "known": "Known to the attacker",
        "inferred": "Not given; the attacker infers them from the update",
    },
    "batchnorm": {
        "eval": "Running statistics (inference mode), which makes inversion easier",
        "batch": "The client's own batch statistics, kept to itself",
        "batch-shared": "The client's own batch statistics, and the updated running ones are sent along",
    },
}
KNOWS = {"unaware": "no", "adaptive": "yes"}
LEARNED = ("rogs", "gan", "diffusion")  # attacks with a learned prior, by a part of their name


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """One line of the ledger."""

    name: str
    value: str


def assumptions(run: Run) -> list[Assumption]:
    """Who the attacker is and what is taken as given, in words."""
    scenario = run.scenario
    lines = {
        "Attacker": _meaning(scenario, "attacker"),
        "Knows the defense": _knows_defense(run),
        "Model": _stated(scenario, "model"),
        "Weights": _weights(scenario),
        "Data": _stated(scenario, "data"),
        "Clients attacked": _stated(scenario, "images"),
        "Pictures per client": _stated(scenario, "batch_size"),
        "Local training": _local_training(scenario),
        "Labels": _meaning(scenario, "labels"),
        "Batch normalization": _meaning(scenario, "batchnorm"),
        "Loss": _stated(scenario, "loss"),
        "Rounds joined up": _stated(scenario, "rounds", "1"),
        "Aggregation": "None: the server sees each client's own update",
        "Seed": str(run.config.get("seed", NOT_STATED)),
    }
    return [Assumption(name=name, value=value) for name, value in lines.items()]


def _stated(scenario: Mapping[str, Any], key: str, default: str = NOT_STATED) -> str:
    return str(scenario.get(key, default))


def _meaning(scenario: Mapping[str, Any], key: str) -> str:
    value = _stated(scenario, key)
    return MEANINGS[key].get(value, value)


def _weights(scenario: Mapping[str, Any]) -> str:
    return _stated(scenario, "weights") or "Untrained: random initial weights, known to the attacker"


def _local_training(scenario: Mapping[str, Any]) -> str:
    steps = scenario.get("local_steps")
    if steps is None:
        return NOT_STATED
    if steps == 1:
        return "One step (FedSGD): the update is one gradient"
    return f"{steps} steps at rate {_stated(scenario, 'local_rate')} (FedAvg)"


def _knows_defense(run: Run) -> str:
    """Defense by defense: an unaware attacker does not know it, an adaptive one does."""
    tried: dict[str, set[str]] = defaultdict(set)
    for record in run.records:
        if not run.undefended(record.defense):
            tried[record.defense].add(record.attacker)
    words = {name: "yes and no, both tried" if len(kinds) == 2 else KNOWS[kinds.pop()] for name, kinds in tried.items()}
    return "; ".join(f"{name}: {word}" for name, word in words.items()) or "No defense was audited"


def not_tested(run: Run) -> list[str]:
    """What the settings and the records leave open. Never empty: no audit tries everything."""
    return [*_missing_trials(run), *_other_training(run.scenario), *_other_attackers(run), *_other_pictures(run)]


def _missing_trials(run: Run) -> Iterator[str]:
    defenses = dict.fromkeys(r.defense for r in run.records)
    if not any(map(run.undefended, defenses)):
        yield "The undefended model. Without it nobody can tell whether these attacks work here at all."
    known = {r.defense for r in run.records if r.attacker == "adaptive"}
    if blind := [d for d in defenses if d not in known and not run.undefended(d)]:
        yield f"Adaptive attackers against {', '.join(blind)}. An attacker who knows the defense may see more."
    if failed := sum(r.status == "failed" for r in run.records):
        yield f"{failed} of {len(run.records)} trials failed: what they would have shown is not known."


def _other_training(scenario: Mapping[str, Any]) -> Iterator[str]:
    if _stated(scenario, "weights"):
        yield "Other stages of training. One checkpoint was attacked; early ones usually leak more."
    else:
        yield "Trained models. The weights are untrained; leakage changes in the course of training."
    size = _stated(scenario, "batch_size", "the one used")
    yield f"Batch sizes other than {size}." + ("" if size == "1" else " Smaller batches usually leak more.")
    if scenario.get("local_steps", 1) == 1:
        yield "FedAvg: clients that take several local steps before they send."
    else:
        yield f"Other numbers of local steps than {scenario['local_steps']}; one step (FedSGD) usually leaks most."
    if scenario.get("batchnorm", "eval") == "eval":
        yield "Clients that normalize by their own batch (training mode)."
    else:
        yield "Clients that normalize by running statistics (inference mode), which is easier to invert."


def _other_attackers(run: Run) -> Iterator[str]:
    if run.scenario.get("attacker") != "malicious":
        yield "A malicious server that changes the model before it sends it."
    if run.scenario.get("labels", "known") != "known":
        yield "An attacker who knows the labels."
    if int(run.scenario.get("rounds", 1)) == 1:
        yield "An attacker who joins up several rounds of one client."
    attacks = sorted({r.attack for r in run.records})
    if not any(part in attack for part in LEARNED for attack in attacks):
        yield "Attacks with a learned picture of the world (GAN, diffusion, trained inverters)."
    yield f"Any attack other than {', '.join(attacks)}, and any attack published later."
    yield "Aggregated updates, where the server sees only the sum over several clients."


def _other_pictures(run: Run) -> Iterator[str]:
    pictures = {(r.client, r.example) for r in run.records}
    yield f"Other pictures than the {len(pictures)} audited; rare or unusual ones can leak more than these."
    if not any("lpips" in r.scores for r in run.records):
        yield "Perceptual similarity (LPIPS). PSNR and SSIM can miss what a person would recognize."
    if not any("retrieval" in r.scores for r in run.records):
        yield "Identification in a gallery."
    yield f"Random seeds other than {run.config.get('seed', 'the one used')}."
