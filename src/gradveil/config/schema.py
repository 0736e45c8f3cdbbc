"""What an audit can be asked for: the dataclass is the config, its fields are the keys, its defaults the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gradveil.core.choice import Choice
from gradveil.core.local_training import Augment, BatchNorm, Dropout, LocalOptimizer, Order, Schedule, UpdatePrecision
from gradveil.data.draw import Draw

Effort = Literal["quick", "standard", "thorough"]
Scalar = bool | int | float | str


def number(default: float, *, low: float | None = None, high: float | None = None) -> Any:
    """A field with a range, both ends allowed."""
    return field(default=default, metadata={"low": low, "high": high})


# what a scenario can be varied in: the same pictures, model and attackers
VARIED = ("weights", "model_seed", "attack_seed", "batch_size", "local_steps", "local_rate", "local_batch_size",
          "epochs", "order", "optimizer", "momentum", "nesterov", "weight_decay", "schedule", "warmup",
          "clip_gradients", "label_smoothing", "dropout", "augment", "update_precision", "batchnorm", "labels",
          "training", "rounds", "aggregate")  # fmt: skip


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
    epochs: int = number(0, low=0, high=10_000)  # over the client's pictures, in the place of local_steps
    order: Order = "known"  # unknown: every client shuffles its pictures in every epoch, and nobody else knows how
    optimizer: LocalOptimizer = "sgd"
    momentum: float = number(0.0, low=0.0, high=1.0)  # of sgd and rmsprop
    nesterov: bool = False  # of sgd
    dampening: float = number(0.0, low=0.0, high=1.0)  # of sgd
    beta1: float = number(0.9, low=0.0, high=0.9999)  # of adam and adamw
    beta2: float = number(0.999, low=0.0, high=0.999999)  # of adam and adamw
    smoothing: float = number(0.99, low=0.0, high=0.999999)  # of rmsprop: `alpha` in torch
    epsilon: float = number(0.0, low=0.0, high=1.0)  # of all but sgd; 0: 1e-8 or, of adagrad, 1e-10, as in torch
    weight_decay: float = number(0.0, low=0.0)
    schedule: Schedule = "constant"  # of the rate, over the steps of a round
    decay_every: int = number(1, low=1)  # steps; of the schedule `step`
    decay_factor: float = number(0.1, low=0.0, high=1.0)  # of the schedule `step`
    warmup: int = number(0, low=0)  # steps in which the rate rises to its value
    clip_gradients: float = number(0.0, low=0.0)  # norm of the gradient of each step; 0: none
    label_smoothing: float = number(0.0, low=0.0, high=1.0)
    class_weights: tuple[float, ...] = ()  # of the loss, one for each class; empty: all alike
    dropout: Dropout = "off"  # on: clients draw masks in every step
    augment: Augment = "none"  # crop-flip: clients crop and flip at random in every step
    update_precision: UpdatePrecision = "float32"  # to which clients round what they send
    batchnorm: BatchNorm = "eval"
    loss: str = "auto"  # auto: what the data calls for; cross-entropy, binary-cross-entropy or file.py:name
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
    seconds: float = field(default=0.0, compare=False, metadata={"low": 0.0})  # that the run may take; 0: no limit
    scenario: ScenarioConfig = field(default_factory=ScenarioConfig)
    also: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)  # other values of keys of the scenario
    defense: Mapping[str, Choice] = field(default_factory=default_defenses)
    attack: Mapping[str, Choice] = field(default_factory=default_attacks)
    declared: tuple[str, ...] = field(default=(), compare=False)  # keys that were given; the rest are defaults
