"""What the options of a training mean, and which of them cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradveil.config.build import slug
from gradveil.config.resolve import is_user_model
from gradveil.core import toml
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.hashes import sha256
from gradveil.train.federated import evenly
from gradveil.train.settings import Federation

ROUNDS = 20
ENGINES = ("local", "flower")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options as they were given."""

    model: str
    data: str
    data_options: tuple[str, ...]
    defense: str
    rounds: int | None
    epochs: int | None
    checkpoints: str
    evaluate_every: int | None
    engine: str
    device: str
    precision: str
    chunk: int | None
    federation: Mapping[str, Any]
    delta: float | None = None

    def told(self) -> dict[str, Any]:
        """What decides about the result and is no part of the federation."""
        return {"model": self.model, "data": self.data, "data_options": self.data_options, "asked": self.defense}

    def audited(self) -> list[str]:
        """The options of an audit of the same thing, but for the weights."""
        options = [part for option in self.data_options for part in ("--data-option", option)]
        return ["--data", self.data, *options, "--model", self.model, "--defense", self.defense]


def check_engine(asked: Asked) -> None:
    """Flower's clients are processes of their own, on a CPU and in float32, with a model that all of them can make."""
    if asked.engine not in ENGINES:
        raise unknown("engine", asked.engine, ENGINES, "--engine")
    if asked.engine == "local":
        return
    only = {"--device": (asked.device, ("auto", "cpu")), "--precision": (asked.precision, ("float32",))}
    only |= {"--chunk": (asked.chunk, (None,)), "--evaluate-every": (asked.evaluate_every, (None, 1))}
    for option, (value, possible) in only.items():
        if value not in possible:
            raise ConfigError(f"{option}: {value} is not for --engine flower, leave it out or take --engine local")
    if is_user_model(asked.model):
        raise ConfigError("--model: --engine flower trains models of the catalogue alone, take --engine local")


def federation_of(asked: Asked, pictures: int) -> Federation:
    """The federation; `--epochs` are as many rounds as feed every picture so often."""
    if not 0 <= (seed := asked.federation["seed"]) < 2**63:
        raise ConfigError(f"--seed: must be between 0 and 2^63 - 1, got {seed}")
    if asked.epochs is not None and asked.epochs < 1:
        raise ConfigError(f"--epochs: must be at least 1, got {asked.epochs}")
    if asked.epochs is not None and (asked.rounds is not None or asked.federation["method"] != "fedsgd"):
        raise ConfigError("--epochs: is for --method fedsgd and stands instead of --rounds, leave one out")
    if asked.federation["method"] == "fedsgd" and asked.federation["local_epochs"] != 1:
        raise ConfigError("--local-epochs: a client of fedsgd takes one batch a round, leave it out")
    rounds = ROUNDS if asked.rounds is None else asked.rounds
    federation = Federation(**asked.federation, rounds=rounds)
    if asked.epochs is None:
        return federation
    fed = (federation.per_round or federation.clients) * federation.batch_size
    return Federation(**asked.federation, rounds=asked.epochs * max(1, pictures // fed))


def checkpoints_of(text: str, rounds: int) -> tuple[int, ...]:
    """`4`: so many, evenly spaced; `10,50`: these rounds; `0`: none.

    >>> checkpoints_of("4", 20), checkpoints_of("1,20", 20), checkpoints_of("0", 20)
    ((5, 10, 15, 20), (1, 20), ())
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 10 for part in parts):
        raise ConfigError(f"--checkpoints: {text[:50]!r} is neither a number nor rounds, write 4 or 10,50,100")
    numbers = [int(part) for part in parts]
    if len(numbers) == 1:
        return evenly(min(numbers[0], rounds), rounds) if numbers[0] else ()
    for number in numbers:
        if not 1 <= number <= rounds:
            raise ConfigError(f"--checkpoints: round {number} is not one of 1 to {rounds}, leave it out")
    return tuple(sorted(set(numbers)))


def default_folder(asked: Asked, federation: Federation, checkpoints: tuple[int, ...]) -> Path:
    """runs/train-<data>-<model>-<hash of all settings>: the same command goes on with the same run."""
    what = slug(f"{Path(asked.data).name}-{Path(asked.model).name}")
    plain = {key: value for key, value in asdict(federation).items() if value is not None}
    every = {"engine": asked.engine, "precision": asked.precision, "checkpoints": checkpoints}
    settings = toml.dump({**every, **asked.told(), "every": asked.evaluate_every or 0, "federation": plain})
    return Path("runs") / f"train-{what}-{sha256(settings.encode())[:8]}"
