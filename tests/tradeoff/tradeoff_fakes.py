"""Points, records and leakages made by hand, and a study that is over in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradveil.core.choice import Choice
from gradveil.experiment.record import Record
from gradveil.tradeoff import StudySettings
from gradveil.tradeoff.defenses import Candidate, Role, noise
from gradveil.tradeoff.estimates import of_pictures, of_share
from gradveil.tradeoff.leakage import Leakage
from gradveil.tradeoff.outcome import StudyOutcome
from gradveil.tradeoff.points import flags_of, points_of

TINY: dict[str, Any] = {
    "data_options": {"count": 60, "size": 8},
    "model": "mlp",
    "rounds": 3,
    "clients": 4,
    "per_round": 2,
    "split": "iid",
    "rate": 0.1,
    "seeds": 2,
    "images": 2,
    "stages": (1.0,),
    "attacks": ("linear",),
    "noise": (1e-1,),
    "random_policies": 0,
    "defenses": ("prune:ratio=0.5",),
    "match": 1,
}


def tiny(**changes: Any) -> StudySettings:
    return StudySettings(**{**TINY, **changes})


def candidate(label: str, role: Role = "defense") -> Candidate:
    name = {"none": "none", "noise": "gaussian", "random": "random-policy", "defense": "prune"}[role]
    return Candidate(label=label, choice=Choice(name=name), role=role)


def training(label: str, number: int, accuracy: float | None, reason: str = "") -> Record:
    scores = {} if accuracy is None else {"accuracy": accuracy, "accuracy@1": accuracy / 2, "accuracy@2": accuracy}
    return Record(key=f"training/{label}/{number}", status="failed" if reason else "ok", scenario="training",
                  defense=label, attack="training", attacker="unaware", client="", example=number, seed=number,
                  seconds=1.0, backend="", scores=scores, reason=reason)  # fmt: skip


def leakage(psnr: Sequence[float], verdict: str = "leaks", leaked: int = 0, **changes: Any) -> Leakage:
    pictures = [f"p{k}" for k in range(len(psnr))]
    shares = {name: dict.fromkeys(pictures, 0.0) for name in ("leaked", "identified")}
    own: dict[str, Any] = {
        "values": {"psnr": dict(zip(pictures, psnr, strict=True)), **shares},
        "measures": {"psnr": of_pictures(psnr), "leaked": of_share(leaked, len(psnr))},
        "pictures": len(psnr), "leaked": leaked, "identified": leaked, "attempted": len(psnr), "failed": 0,
        "verdict": verdict, "reasons": (), "under": "dlg (10 steps)", "positive": "all of them", "adaptive": True,
    }  # fmt: skip
    return Leakage(**{**own, **changes})


def outcome(
    candidates: Sequence[Candidate],
    accuracies: Mapping[str, Sequence[float | None]],
    audits: Mapping[str, Leakage | str],
    study: StudySettings | None = None,
) -> StudyOutcome:
    """As `run` would put it together."""
    study = study or StudySettings(seeds=3)
    trainings = {
        label: {
            k: training(label, k, a, "" if a is not None else "RuntimeError: <b>diverged") for k, a in enumerate(some)
        }
        for label, some in accuracies.items()
    }
    points = points_of(study, candidates, trainings, audits)
    front = tuple(point.label for point in points if point.on_front)
    settings = study.to_tables()["tradeoff"]
    return StudyOutcome(settings=settings, provenance={"torch": "2"}, points=points, front=front,
                   flags=flags_of(study, points))  # fmt: skip


def example() -> StudyOutcome:
    """No defense, two scales of noise, a defense that beats noise, one that does not, one that failed."""
    who = [candidate("none", "none"), noise(0.01), noise(0.1), candidate("good"), candidate("bad"), candidate("broken")]
    accuracies: dict[str, list[float | None]] = {
        "none": [0.90, 0.91, 0.89],
        "gaussian-0.01": [0.80, 0.81, 0.79],
        "gaussian-0.1": [0.40, 0.42, 0.38],
        "good": [0.80, 0.81, 0.80],
        "bad": [0.80, 0.80, 0.79],
        "broken": [0.80, None, 0.80],
    }
    audits = {
        "none": leakage([30.0, 31, 32, 33], leaked=4),
        "gaussian-0.01": leakage([20.0, 21, 22, 23], leaked=2),
        "gaussian-0.1": leakage([11.0, 12, 12, 11], verdict="no leak found"),
        "good": leakage([12.0, 13, 14.5, 15], leaked=1),
        "bad": leakage([26.0, 27, 28, 29.5], leaked=3),
        "broken": leakage([1.0, 1, 1, 1], verdict="no leak found"),
    }
    return outcome(who, accuracies, audits)
