"""Federated training in this process: rounds, accuracy, checkpoints, and a folder to go on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.types import Batch
from gradveil.dp.budget import Budget
from gradveil.experiment.experiment import Experiment, run
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.progress import Progress
from gradveil.experiment.runner import Runner
from gradveil.train.folder import RoundWriter, TrainingFolder, provenance_of
from gradveil.train.privacy import Stop
from gradveil.train.rounds import Evaluator, OnRound, Run
from gradveil.train.settings import Federation, Precision
from gradveil.train.setup import Setup, Speed, set_up
from gradveil.train.state import Trained

SAVE_EVERY = 10.0  # seconds between states: what a kill can cost


def train_federation(
    model: nn.Module,
    data: Batch,
    validation: Batch,
    federation: Federation,
    defense: Defense,
    *,
    folder: str | Path | None = None,
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
    stop: Stop | None = None,
) -> Trained:
    """Train a copy of the model; what was given stays as it was.

    Args:
        model: Your model; its random or trained weights are where the training begins.
        data: Pictures [n, c, h, w] in [0, 1] and soft labels [n, class] of all clients together.
        validation: The same of the pictures that measure the accuracy.
        federation: Clients, split, method and optimizer.
        defense: What every client applies.
        folder: Folder of the training; None: nothing is written. The folder of an interrupted one is continued.
        checkpoints: Rounds after which the weights are written into the folder.
        evaluate_every: Rounds from one measurement of accuracy to the next.
        device: cpu or cuda.
        on_round: What is called with the result of every round.
        precision: float32, tf32, bf16 or float64.
        graphs: On a GPU, run a step as one CUDA graph.
        fused: Compute all clients in one pass where the result is the same.
        chunk: Clients at once where they are stacked; None: what pays on this device.
        public: Public pictures for a defense that mixes with them.
        settings: More keys for config.toml.
        privacy: The budget of the training for provenance.json; see `gradveil.dp.budget`.
        stop: The last round that a privacy budget allows; see `gradveil.train.privacy.find_stop`.
    """
    check_rounds(checkpoints, evaluate_every, federation, folder)
    training = FederatedTraining(
        model=model,
        data=data,
        validation=validation,
        federation=federation,
        defense=defense,
        speed=Speed(device=device, precision=precision, graphs=graphs, fused=fused, chunk=chunk),
        public=public,
        checkpoints=tuple(sorted(checkpoints)),
        evaluate_every=evaluate_every,
        on_round=on_round,
        settings=settings or {},
        privacy=privacy,
        stop=stop,
    )
    with in_precision(training.speed) as compute:
        return training.play_in_memory() if folder is None else run(training, folder, compute)


@dataclass(kw_only=True, eq=False)
class FederatedTraining(Experiment[Trained]):
    """The rounds of a federation, on the way that all experiments go."""

    folder_type: ClassVar[type[RunFolder]] = TrainingFolder

    model: nn.Module
    data: Batch
    validation: Batch
    federation: Federation
    defense: Defense
    speed: Speed
    public: Batch | None
    checkpoints: tuple[int, ...]
    evaluate_every: int
    on_round: OnRound | None
    settings: Mapping[str, Any]
    privacy: Budget | None
    stop: Stop | None
    setup: Setup = field(init=False)

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        self.set_up()

    def set_up(self) -> None:
        self.setup = set_up(
            self.model, self.data, self.validation, self.federation, self.defense, self.speed, self.public
        )

    def to_tables(self) -> Mapping[str, Any]:
        plain = {key: value for key, value in asdict(self.federation).items() if value is not None}
        played = {"checkpoints": list(self.checkpoints), "evaluate_every": self.evaluate_every}
        return {**played, "defense": repr(self.defense), **self.settings, "federation": plain}

    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        data = {"data": self.data, "validation": self.validation}
        device, precision = self.speed.device, self.speed.precision
        origin = provenance_of(self.model, data, config, self.federation.seed, device, precision)
        return origin if self.privacy is None else {**origin, "privacy": self.privacy.as_json()}

    def play(self, runner: Runner) -> Trained:
        home = TrainingFolder(runner.home.path)
        return self.rounds().resume(RoundWriter(home, runner.journal, self.setup.start, SAVE_EVERY))

    def play_in_memory(self) -> Trained:
        """Without a folder: nothing is written."""
        self.set_up()
        return self.rounds().play()

    def rounds(self) -> Run:
        evaluator = Evaluator(
            model=self.setup.model,
            validation=self.setup.validation,
            federation=self.federation,
            bf16=self.speed.precision == "bf16",
        )
        return Run(
            setup=self.setup,
            state=self.setup.start,
            federation=self.federation,
            evaluator=evaluator,
            checkpoints=frozenset(self.checkpoints),
            evaluate_every=self.evaluate_every,
            on_round=self.on_round,
            device=self.speed.device,
            stop=self.stop,
        )


def check_rounds(
    checkpoints: Sequence[int], evaluate_every: int, federation: Federation, folder: str | Path | None
) -> None:
    if evaluate_every < 1:
        raise ConfigError(f"must be at least 1, got {evaluate_every}", key="evaluate_every")
    for round in checkpoints:
        if not 1 <= round <= federation.rounds:
            raise ConfigError(f"must be rounds of 1 to {federation.rounds}, got {round}", key="checkpoints")
    if checkpoints and folder is None:
        raise ConfigError("need a folder to be saved in, set `folder`", key="checkpoints")


@contextmanager
def in_precision(speed: Speed) -> Iterator[Compute]:
    """Products as precise as was asked for, and on a GPU the algorithms that are measured to be fastest."""
    rounding = "tf32" if speed.precision in ("tf32", "bf16") else "float32"
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = speed.device.startswith("cuda")
    try:
        compute = Compute(device=speed.device, precision=rounding)
        with compute.active():
            yield compute
    finally:
        torch.backends.cudnn.benchmark = before
