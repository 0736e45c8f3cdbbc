"""The settings of a study of accuracy against leakage, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

from gradveil.audit.verdict.leak import CLOSENESS, IDENTIFICATION
from gradveil.config import AuditConfig, from_tables
from gradveil.config.resolve import needed_files
from gradveil.config.schema import Effort, Scalar
from gradveil.core.check import check
from gradveil.core.choice import parse_choice, parse_choices
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.scenario import BatchNorm
from gradveil.metrics import METRICS
from gradveil.tradeoff.defenses import Candidate, candidates, noise
from gradveil.train.settings import Federation, Method

LEAKED = "leaked"  # the measure that counts: 1 for a picture that leaked, 0 for one that did not
DEFENSES = (
    "prune:ratio=0.9,0.99",
    "sign:scaled=true",
    "ats:3-1-7+43-18-18",
    "dpsgd:noise=0.01",
)
QUICK = "autoattack:steps=80"
SMALL: Mapping[str, Scalar] = {"count": 640, "size": 16}
RANGES = {  # both ends allowed
    "seeds": (1, 1_000),
    "attacked_seeds": (1, 1_000),
    "images": (2, 100_000),
    "victim_batch": (1, 4096),
    "random_policies": (0, 10_000),
    "match": (0, 20),
    "seed": (0, 2**62),
}
FREE = ("data_options", "defenses", "attacks", "stages", "noise", "metrics")  # checked by those who read them


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """Defenses by what they cost in accuracy and what they still leak, at the same training. The defaults are small.

    >>> settings = StudySettings(defenses=("prune:ratio=0.9",), random_policies=1, noise=(0.01,))
    >>> [one.label for one in settings.candidates()]
    ['none', 'gaussian-0.01', 'random-policy-0', 'prune-0.9']
    """

    model: str = "lenet"
    normalize: str = "auto"  # constants in front of the model
    data: str = "photos"
    data_options: Mapping[str, Scalar] = field(default_factory=dict)
    defenses: tuple[str, ...] = DEFENSES  # NAME[:k=v,...]; several values of a key are several strengths
    seeds: int = 3  # trainings of every defense, the same for all of them
    rounds: int = 40
    clients: int = 10
    per_round: int = 5  # clients in a round; 0: all
    split: str = "dirichlet:0.5"
    method: Method = "fedavg"
    local_epochs: int = 1
    batch_size: int = 32
    rate: float = 1.0
    momentum: float = 0.0
    batchnorm: BatchNorm = "eval"
    augment: bool = False
    images: int = 16  # victims: pictures, or batches of them, of the clients' own
    victim_batch: int = 1  # pictures of a victim
    stages: tuple[float, ...] = (0.1, 1.0)  # shares of the training at which models are attacked
    attacked_seeds: int = 1  # trainings whose models are attacked
    attacks: tuple[str, ...] = ()  # NAME[:k=v,...]; none given: autoattack, of few steps in the quick budget
    budget: Effort = "quick"
    metrics: tuple[str, ...] = ("psnr", "ssim", "retrieval", "retrieval-rank", "psnr-symmetric", "retrieval-symmetric")
    lpips_weights: str = ""
    measure: str = "psnr"  # what the plot calls leakage: one of the metrics, or leaked
    noise: tuple[float, ...] = (1e-3, 3e-3, 1e-2)  # scales of the baseline that every defense is compared with
    match: int = 1  # trainings at other scales, per defense, to come nearer to its accuracy
    random_policies: int = 1  # the baseline of policies
    seed: int = 0

    def to_tables(self) -> dict[str, Any]:
        """What config.toml says of it."""
        unsaid = {"data_options"} | ({"normalize"} if self.normalize == "auto" else set())  # as in runs without the key
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in unsaid}
        return {"tradeoff": {**plain, "data_options": self.options()}}

    def options(self) -> dict[str, Scalar]:
        """Of the data; the built-in photographs are few and small unless somebody says otherwise."""
        return dict(self.data_options) or (dict(SMALL) if self.data == "photos" else {})

    def candidates(self) -> tuple[Candidate, ...]:
        """The baselines, then what is asked for."""
        return candidates(self.defenses, self.noise, self.random_policies)

    def federation(self, number: int) -> Federation:
        """The training with the seed of this number: split, order, weights and noise all follow from it."""
        own = ("rounds", "clients", "split", "method", "local_epochs", "batch_size", "rate", "momentum", "batchnorm",
               "augment")  # fmt: skip
        settings = {name: getattr(self, name) for name in own}
        return Federation(**settings, per_round=self.per_round or None, seed=self.seed + number)

    def attacked_rounds(self) -> tuple[int, ...]:
        """After how many rounds models are attacked; 0 is the model before training."""
        return tuple(sorted({round(share * self.rounds) for share in self.stages}))

    def audit_config(self, candidate: Candidate) -> AuditConfig:
        """The audit of one defense, its budget spent; scenarios are made from the trained models."""
        chosen = self.attacks or ((QUICK,) if self.budget == "quick" else ("autoattack",))
        attacks = {label: {"name": c.name, **c.options} for label, c in parse_choices(chosen, "attacks").items()}
        return from_tables(
            {
                "seed": self.seed,
                "budget": self.budget,
                "metrics": list(self.metrics),
                "lpips_weights": self.lpips_weights,
                "scenario": {
                    "data": self.data,
                    "data_options": self.options(),
                    "model": self.model,
                    "normalize": self.normalize,
                    "images": self.images,
                    "batch_size": self.victim_batch,
                    "batchnorm": self.batchnorm,
                },
                "defense": {candidate.label: {"name": candidate.choice.name, **candidate.choice.options}},
                "attack": attacks,
            },
            _own_key,
        )


def _own_key(key: str) -> str:
    """The setting of a study that a key of its audits comes from."""
    head, _, rest = key.removeprefix("scenario.").partition(".")
    head = {"batch_size": "victim_batch", "defense": "defenses", "attack": "attacks"}.get(head, head)
    return f"{head}.{rest}" if rest else head


def check_settings(study: StudySettings) -> tuple[Candidate, ...]:
    """The defenses that it speaks of; ConfigError if it cannot be done. Loads nothing."""
    kinds = get_type_hints(StudySettings)
    for name in (name for name in kinds if name not in FREE):
        check(getattr(study, name), kinds[name], name)
    for name, (low, high) in RANGES.items():
        if not low <= getattr(study, name) <= high:
            raise ConfigError(f"must be between {low} and {high:,}, got {getattr(study, name):,}", key=name)
    _check_stages(study)
    if study.attacked_seeds > study.seeds:
        at_most = f"must be at most {study.seeds} (`seeds`)"
        raise ConfigError(f"{at_most}, got {study.attacked_seeds}", key="attacked_seeds")
    _check_metrics(study)
    study.federation(0)
    found = study.candidates()
    for candidate in found:
        study.audit_config(candidate)
    return found


def _check_metrics(study: StudySettings) -> None:
    names = [parse_choice(text, "metrics").name for text in study.metrics]
    if study.measure not in (LEAKED, *names):
        got = f"must be {LEAKED} or one of the metrics ({', '.join(names)}), got {study.measure!r}"
        raise ConfigError(f"{got}; add it to `metrics`", key="measure")
    deciding = (CLOSENESS.name, IDENTIFICATION.name)
    if not set(deciding) <= set(names):
        raise ConfigError(f"must include {' and '.join(deciding)}, which decide what has leaked", key="metrics")
    for name in names:
        if name not in METRICS:
            raise unknown("metrics", name, METRICS)
        for key, what in needed_files(name):
            if not hasattr(study, key):
                raise ConfigError(f"{name} needs {what}, which a study does not take, leave it out", key="metrics")


def _check_stages(study: StudySettings) -> None:
    shares = study.stages
    if not shares or not all(isinstance(share, int | float) and 0 <= share <= 1 for share in shares):
        raise ConfigError(f"must be shares of the training from 0 to 1, got {list(shares)}", key="stages")
    if not study.noise:
        raise ConfigError("a comparison needs noise of at least one scale, got none", key="noise")
    for scale in study.noise:
        noise(scale)
