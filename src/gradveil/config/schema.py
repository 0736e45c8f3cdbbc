"""What an audit can be asked for: the dataclass is the config, its fields are the keys, its defaults the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gradveil.core.choice import Choice
from gradveil.core.scenario import BatchNorm
from gradveil.data.draw import Draw

Effort = Literal["quick", "standard", "thorough"]
Scalar = bool | int | float | str


def number(default: float, *, low: float | None = None, high: float | None = None) -> Any:
    """A field with a range, both ends allowed."""
    return field(default=default, metadata={"low": low, "high": high})


# what a scenario can be varied in: the same pictures, model and attackers
VARIED = ("weights", "model_seed", "attack_seed", "batch_size", "local_steps", "local_rate", "local_batch_size",
          "momentum", "weight_decay", "batchnorm", "labels", "training", "rounds", "aggregate")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ScenarioConfig:
    """Whose model and data, how the clients train, and what the attacker knows."""

    model: str = "lenet"
    weights: str = ""
    normalize: str = (
        "auto"  # constants in front of the model; auto: those of the data for a named model, none for your own
    )
    model_seed: int = number(0, low=0)
    attack_seed: int = number(0, low=0)  # of the attacks' starts and the defenses' noise; the pictures stay
    capture: str = ""  # a file: what real clients sent is audited, and the keys of training are read off it
    data: str = "photos"  # of a capture the clients' own pictures, or "" where nobody has them
    data_options: Mapping[str, Scalar] = field(default_factory=dict)
    pictures: tuple[int, ...] = ()  # rows of the data that the captured clients hold, client after client
    draw: Draw = "seed"  # which pictures are the victims: a random sample by `seed`, or the first ones
    images: int = number(8, low=1, high=100_000)  # victims: clients, with batch_size pictures each
    canaries: int = number(0, low=0, high=10_000)  # unusual pictures beside the sample, chosen and reported apart
    batch_size: int = number(1, low=1, high=4096)
    local_steps: int = number(1, low=1, high=10_000)
    local_rate: float = number(1.0, low=1e-12, high=1e6)
    local_batch_size: int = number(0, low=0)  # 0: all of the client's pictures in every step
    momentum: float = number(0.0, low=0.0, high=1.0)
    weight_decay: float = number(0.0, low=0.0)
    batchnorm: BatchNorm = "eval"
    loss: Literal["auto", "cross-entropy", "binary-cross-entropy"] = "auto"  # auto: what the data calls for
    labels: Literal["known", "inferred"] = "known"
    training: Literal["known", "estimated"] = "known"  # whether the attacker knows local steps and rate
    rounds: int = number(1, low=1, high=1000)  # of every client that the attacker joins up
    aggregate: int = number(1, low=1, high=1000)  # clients with batch_size pictures each whose updates come as one sum
    encodings: Literal["hidden", "seen"] = "hidden"  # whether the attacker also has the pictures as encoded
    attacker: Literal["eavesdropper", "curious", "malicious"] = "curious"


def default_defenses() -> dict[str, Choice]:
    """None as the positive control; noise and pruning at the strengths that the papers compare with."""
    return {
        "none": Choice(name="none"),
        "gaussian": Choice(name="gaussian", options={"scale": 1e-2}),
        "prune": Choice(name="prune", options={"ratio": 0.9}),
    }


def default_attacks() -> dict[str, Choice]:
    """Several of different kinds: which one sees most depends on the model."""
    return {"autoattack": Choice(name="autoattack")}


DEFAULT_METRICS = (
    "psnr",
    "ssim",
    "retrieval",
    "retrieval-top5",
    "retrieval-rank",
    "psnr-symmetric",
    "retrieval-symmetric",
)


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """One audit. Every defense is attacked by every attack; see `gradveil.config.build`."""

    seed: int = number(0, low=0)
    budget: Effort = "standard"
    metrics: tuple[str, ...] = DEFAULT_METRICS  # NAME[:k=v,...]
    lpips_weights: str = ""
    lpips_vgg_weights: str = ""
    tagger: str = ""  # weights of EfficientNet-Lite0, for jaccard and retrieval-features
    gallery: int = number(1000, low=1, high=1_000_000)  # pictures beside the original, at most
    lineup: int | Literal["auto"] = "auto"  # candidates of a line-up, the original included; 0: none is held
    limit_named: float = number(0.05, low=0.001, high=0.5)  # "bounded": nobody names a larger share
    convergence: bool = True  # also with twice the steps, on the undefended model; a quick budget leaves it out
    sequence: bool = False  # attacks in order: who does not apply is left out, pictures recovered whole drop out
    tuned_on: tuple[str, ...] = ()  # runs, or files of hashes, on which settings of attacks were chosen
    scenario: ScenarioConfig = field(default_factory=ScenarioConfig)
    also: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)  # other values of keys of the scenario
    defense: Mapping[str, Choice] = field(default_factory=default_defenses)
    attack: Mapping[str, Choice] = field(default_factory=default_attacks)
    declared: tuple[str, ...] = field(default=(), compare=False)  # keys that were given; the rest are defaults
