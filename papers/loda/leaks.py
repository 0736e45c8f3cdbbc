"""What leaks (tables 1, 2): the gradient of one fed picture at a time, attacked with and without knowing the defense.

unaware: Inverting Gradients, as it is. For what mixes, each recovered encoding is held against its largest component.
adaptive: pruning is masked in the match; mixtures of all rounds are decoded with known weights; LODA is undone by
`loda-inverse` and by `loda-inverse-paper`. "encodings seen": the same on the encodings themselves, the upper bound.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from study import DEFENDED, Study
from torch import Tensor
from training import Cells

from gradveil.attacks.decode_known import decode_known
from gradveil.attacks.decoding.joint_search import search_all_rounds
from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.loda_inverse import loda_inverse, loda_inverse_paper
from gradveil.core.attack import Attack
from gradveil.core.defense import Defense
from gradveil.core.observation import Observation
from gradveil.core.scenario import Scenario, ThreatModel
from gradveil.core.seeds import Seed
from gradveil.core.server import observe
from gradveil.core.types import Batch
from gradveil.defenses.loda.loda import Loda
from gradveil.engine.inversion import Inversion
from gradveil.models import load_weights

NONE = Defense()
PAPER = {  # mean PSNR, mean LPIPS without (table 1) and with adaptive attack (table 2)
    "none": (16.61, 0.098, 16.61, 0.098),
    "prune 0.9": (11.48, 0.224, 11.48, 0.224),
    "prune 0.99": (5.44, 0.490, 5.44, 0.490),
    "mixup 4": (15.01, 0.377, 29.23, 0.039),
    "mixup 6": (14.20, 0.400, 28.25, 0.049),
    "instahide 4": (9.51, 0.656, 10.77, 0.395),
    "instahide 6": (9.98, 0.628, 10.62, 0.394),
    "loda-1": (5.77, 0.589, 12.95, 0.537),
    "loda-2": (7.41, 0.566, 13.04, 0.558),
}


def attacks(study: Study) -> Cells:
    return {label: partial(leaked, study, label) for label in DEFENDED}


def leaked(study: Study, label: str) -> dict[str, Any]:
    kind = DEFENDED[label][0]
    measure = on_mixtures if kind in ("mixup", "instahide") else on_encodings if "loda" in kind else on_gradients
    names = ("unaware_psnr", "unaware_lpips", "adaptive_psnr", "adaptive_lpips")
    head = {"model": study.asked.model, "trained": study.asked.weights is not None, "steps": study.asked.steps}
    return head | {"paper": dict(zip(names, PAPER[label], strict=True))} | measure(study, label)


def on_gradients(study: Study, label: str) -> dict[str, Any]:
    """No defense, and those that change gradients."""
    defense, private = study.defense(label), victims(study, study.asked.images)
    report: dict[str, Any] = {}
    for attacker in ("unaware", "adaptive") if defense.has_adaptive_attacker else ("unaware",):
        seen = one_by_one(study, private, defense, aware=attacker == "adaptive")
        got = inverted(study, seen, inner(study, label))
        report[attacker] = study.compared(got, private.images)
    return report


def on_encodings(study: Study, label: str) -> dict[str, Any]:
    defense, private = study.defense(label), victims(study, study.asked.images)
    encodings = study.encodings(defense, study.asked.images)[0].to(private.images)
    seen = one_by_one(study, Batch(encodings, private.labels))
    got = inverted(study, seen, inner(study, label))
    assert isinstance(defense, Loda)
    report: dict[str, Any] = {"reduce": defense.reduce, "units": defense.units}
    report |= {"unaware": study.compared(got, private.images), "fed": study.compared(got, encodings)}
    report["encodings seen, as they are"] = study.compared(encodings, private.images)
    ways: dict[str, Attack] = {"adaptive": loda_inverse(), "adaptive, as in the paper": loda_inverse_paper()}
    for name, attack in ways.items():
        for where, known in ((name, got), (f"encodings seen, {name}", encodings)):
            given = replace(seen, defense=defense, encodings=known.unsqueeze(1))
            undone = attack.reconstruct(given, Seed(study.asked.seed), study.compute)
            report[where] = study.compared(undone.images.flatten(0, 1), private.images) | {"notes": undone.notes}
    return report


def on_mixtures(study: Study, label: str) -> dict[str, Any]:
    """One client mixes its pictures anew in every round and sends the gradient of each mixture on its own."""
    defense, private = study.defense(label), victims(study, study.asked.mixed)
    rounds = played(study, defense, private)
    encodings, labels, weights = together(rounds)
    singles = one_by_one(study, Batch(encodings, labels))
    got = inverted(study, singles, inner(study, label))
    largest = private.images[weights.argmax(1)]
    report = {"rounds": len(rounds.history) + 1, "private": len(private.images)}
    report |= {"unaware": study.compared(got, largest), "fed": study.compared(got, encodings)}
    report["encodings seen, as they are"] = study.compared(encodings, largest)
    decoded = undone(study, rounds, got)
    report["adaptive"] = study.compared(decoded, private.images)
    report["encodings seen, adaptive"] = study.compared(undone(study, rounds, encodings), private.images)
    if study.asked.joint and label.startswith("mixup"):
        report["adaptive, all updates at once"] = study.compared(
            joint(study, singles, weights, decoded), private.images
        )
    return report


def victims(study: Study, count: int) -> Batch:
    """The first private pictures."""
    data = study.private
    return Batch(*(x[:count].to(study.compute.device) for x in (data.images, data.targets)))


def inner(study: Study, label: str) -> Inversion:
    """Inverting Gradients; flipped pixels are not smooth, so there without TV."""
    tv = study.asked.tv_pruned if label.startswith("prune") else study.asked.tv
    return invertgrad(steps=study.asked.steps, tv=0.0 if label.startswith("instahide") else tuple(tv))


def inverted(study: Study, seen: Observation, attack: Inversion) -> Tensor:
    """The pictures [n, c, h, w] that the attack reads off one update each."""
    begin = time.perf_counter()
    got = attack.reconstruct(seen, Seed(study.asked.seed).at("attack"), study.compute)
    count, seconds = len(seen.names), time.perf_counter() - begin
    print(f"  {count} updates in {seconds:.1f} s, {got.backend} {' '.join(got.notes)}", flush=True)
    return got.images.flatten(0, 1).nan_to_num(0).clamp(0, 1)


def one_by_one(study: Study, fed: Batch, defense: Defense = NONE, *, aware: bool = False) -> Observation:
    """What a server sees of clients with one picture each."""
    single = Batch(fed.images.unsqueeze(1), fed.labels.unsqueeze(1))
    return seen_of(study, single, defense, ThreatModel(knows_defense=aware))


def played(study: Study, defense: Defense, private: Batch) -> Observation:
    """The rounds of one client with all of the pictures: what it mixed, and the encodings."""
    threat = ThreatModel(knows_defense=True, sees_encodings=True, rounds=study.asked.rounds)
    return seen_of(study, Batch(*(x.unsqueeze(0) for x in private)), defense, threat)


def seen_of(study: Study, private: Batch, defense: Defense, threat: ThreatModel) -> Observation:
    model = study.network(study.asked.model)
    if study.asked.weights is not None:
        load_weights(model, study.asked.weights)
    model = model.to(study.compute.device).eval()
    names = tuple(f"c{place:04d}" for place in range(len(private.images)))
    scenario = Scenario(name="loda", model=model, private=private, names=names, threat=threat)
    return observe(scenario, defense, invertgrad(), Seed(study.asked.seed))[0]


def together(rounds: Observation) -> tuple[Tensor, Tensor, Tensor]:
    """Encodings, their labels and their weights, round after round: [encoding, ...]."""
    each = (*rounds.history, rounds)
    images = [one.knowledge.encodings[0] for one in each if one.knowledge.encodings is not None]
    labels = [one.labels[0] for one in each if one.labels is not None]
    weights = [one.knowledge.mixture.weights[0] for one in each if one.knowledge.mixture is not None]
    return torch.cat(images), torch.cat(labels), torch.cat(weights)


def undone(study: Study, rounds: Observation, encodings: Tensor) -> Tensor:
    """The pictures in encodings that were read off updates, or given: `decode-known` on all rounds."""
    parts = encodings.unsqueeze(0).split(rounds.examples, 1)
    history = [replace(one, encodings=part) for one, part in zip(rounds.history, parts[:-1], strict=True)]
    given = replace(rounds, history=tuple(history), encodings=parts[-1])
    return decode_known(leak="encoding").reconstruct(given, Seed(study.asked.seed), study.compute).images[0]


def joint(study: Study, singles: Observation, weights: Tensor, start: Tensor) -> Tensor:
    """From the decoded pictures on, one search for those that explain all updates."""
    assert singles.labels is not None
    mixed = [weights.unsqueeze(1), weights.new_zeros(len(weights), 1, *singles.shape)]
    attack = invertgrad(steps=study.asked.joint, tv=study.asked.tv[0])
    return search_all_rounds(attack, singles, singles.labels, mixed, start.clamp(0, 1), study.compute).images
