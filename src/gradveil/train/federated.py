"""Federated training in this process: rounds, accuracy, checkpoints, and a folder to go on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradveil.core import toml
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.dp.budget import Budget
from gradveil.train.evaluation import Evaluator
from gradveil.train.folder import open_folder, provenance_of
from gradveil.train.result import Trained
from gradveil.train.rounds import OnRound, Run
from gradveil.train.settings import Federation, Precision
from gradveil.train.setup import Speed, set_up

SAVE_EVERY = 10.0  # seconds between states: what a kill can cost


def train_federation(
    model: nn.Module,
    data: Batch,
    validation: Batch,
    federation: Federation,
    defense: Defense,
    *,
    folder: Path | None = None,
    checkpoints: Sequence[int] = (),
    evaluate_every: int = 1,
    device: str = "cpu",
    on_round: OnRound | None = None,
    precision: Precision = "float32",
    graphs: bool = True,
    fused: bool = True,
    chunk: int | None = None,
    public: Batch | None = None,
    settings: Mapping[str, Any] | None = None,
    privacy: Budget | None = None,
) -> Trained:
    """Train a copy of the model; what was given stays as it was.

    `checkpoints` are rounds whose weights are kept in the folder. A folder that holds the same run is gone on with.
    `settings` are written into the folder's config beside the federation, `privacy` (see `gradveil.dp`) into its
    provenance. What comes after `on_round` is about speed,
    but for the public pictures that some defenses mix with.
    """
    check_rounds(checkpoints, evaluate_every, federation, folder)
    speed = Speed(device=device, precision=precision, graphs=graphs, fused=fused, chunk=chunk)
    with in_precision(speed):
        setup = set_up(model, data, validation, federation, defense, speed, public)
        run = Run(
            setup=setup,
            state=setup.start,
            federation=federation,
            evaluator=Evaluator(
                model=setup.model,
                validation=setup.validation,
                federation=federation,
                bf16=precision == "bf16",
            ),
            checkpoints=frozenset(checkpoints),
            evaluate_every=evaluate_every,
            on_round=on_round,
            device=device,
        )
        if folder is None:
            return run.play()
        config = config_of(federation, defense, checkpoints, evaluate_every, settings)
        provenance = provenance_of(
            model, {"data": data, "validation": validation}, config, federation.seed, device, precision
        )
        if privacy is not None:
            provenance |= {"privacy": privacy.as_json()}
        with open_folder(folder, config, provenance, setup.start, SAVE_EVERY) as (home, diary):
            return run.play_in(home, diary)


def check_rounds(checkpoints: Sequence[int], evaluate_every: int, federation: Federation, folder: Path | None) -> None:
    if evaluate_every < 1:
        raise ConfigError(f"must be at least 1, got {evaluate_every}", key="evaluate_every")
    for round in checkpoints:
        if not 1 <= round <= federation.rounds:
            raise ConfigError(f"must be rounds of 1 to {federation.rounds}, got {round}", key="checkpoints")
    if checkpoints and folder is None:
        raise ConfigError("need a folder to be saved in, set `folder`", key="checkpoints")


def config_of(
    federation: Federation,
    defense: Defense,
    checkpoints: Sequence[int],
    evaluate_every: int,
    settings: Mapping[str, Any] | None,
) -> str:
    """All that decides about the result, as TOML."""
    plain = {key: value for key, value in asdict(federation).items() if value is not None}
    run = {"checkpoints": sorted(checkpoints), "evaluate_every": evaluate_every, "defense": repr(defense)}
    return toml.dump({**run, **(settings or {}), "federation": plain})


@contextmanager
def in_precision(speed: Speed) -> Iterator[None]:
    """Products as precise as was asked for, and on a GPU the algorithms that are measured to be fastest."""
    rounding = "tf32" if speed.precision in ("tf32", "bf16") else "float32"
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = speed.device.startswith("cuda")
    try:
        with Compute(device=speed.device, precision=rounding).active():
            yield
    finally:
        torch.backends.cudnn.benchmark = before
