"""One training run: rounds in blocks, the model evaluated between them, and what is stored."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradveil.core.client import in_client_mode
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import Loss
from gradveil.core.types import Batch
from gradveil.dp.allowance import KEY
from gradveil.train.client import as_buffers
from gradveil.train.folder import RoundWriter
from gradveil.train.gossip import at, mean_of
from gradveil.train.privacy import Stop
from gradveil.train.settings import Federation
from gradveil.train.setup import Setup
from gradveil.train.state import Outcome, RoundResult, State, Table, Trained, as_record, from_record

AT_ONCE = 500  # pictures of a batch


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Classifies the validation pictures; clients that keep their statistics are judged by those of the batch."""

    model: nn.Module
    validation: Batch
    federation: Federation
    bf16: bool = False

    def accuracy(self, state: State) -> tuple[float, float | None]:
        """Of the shared model; in gossip of the mean of all nodes, and of the worst node."""
        params, running = shared_of(state, self.federation)
        whole = self.right(params, running)
        if self.federation.topology != "gossip":
            return whole, None
        nodes = range(self.federation.clients)
        return whole, min(self.right(at(state.params, i), at(state.running, i)) for i in nodes)

    @torch.no_grad()
    def right(self, params: Table, running: Table) -> float:
        if self.federation.batchnorm == "batch":
            model, weights = in_client_mode(self.model, self.federation.local_training(1, 0.0)), params
        else:
            model, weights = self.model, params | as_buffers(running)
        total = torch.zeros((), device=self.validation.images.device)
        with torch.autocast(total.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            for images, labels in zip(*(x.split(AT_ONCE) for x in self.validation), strict=True):
                total += share_right(functional_call(model, dict(weights), (images,)), labels, self.federation.loss)
        return total.item() / len(self.validation.images)


def share_right(logits: Tensor, labels: Tensor, kind: Loss) -> Tensor:
    """Summed over pictures: 1 for the right class; with several labels per picture, the share of right ones."""
    if kind == "binary-cross-entropy":
        return ((logits > 0) == (labels > 0.5)).float().mean(1).sum()
    return (logits.argmax(1) == labels.argmax(1)).float().sum()


def shared_of(state: State, federation: Federation) -> tuple[Table, Table]:
    """Weights and running statistics of the model that the federation would hand out."""
    if federation.topology == "gossip":
        return mean_of(state.params), mean_of(state.running)
    return state.params, state.running


def model_at(model: nn.Module, state: State, federation: Federation) -> nn.Module:
    """A copy on the CPU with the weights of a state."""
    params, running = shared_of(state, federation)
    fresh: Mapping[str, Tensor] = params | as_buffers(running)
    model = copy.deepcopy(model).cpu().eval()
    model.load_state_dict({**model.state_dict(), **{name: x.cpu() for name, x in fresh.items()}})
    return model


OnRound = Callable[[RoundResult], None]


@dataclass(kw_only=True)
class Run:
    """Rounds in blocks that end where the model is evaluated or saved."""

    setup: Setup
    state: State  # after the last round that is recorded
    federation: Federation
    evaluator: Evaluator
    checkpoints: frozenset[int]
    evaluate_every: int
    on_round: OnRound | None
    device: str
    stop: Stop | None = None
    writer: RoundWriter | None = None  # None: nothing is stored
    curve: list[RoundResult] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The last round that is played."""
        return self.federation.rounds if self.stop is None else self.stop.round

    @property
    def saved(self) -> frozenset[int]:
        """Rounds after which a checkpoint is written; where the training is stopped, after the last one too."""
        within = {round for round in self.checkpoints if round <= self.last}
        return frozenset(within | {self.last} if self.checkpoints else within)

    def resume(self, writer: RoundWriter) -> Trained:
        """Go on from what the folder holds, and write everything into it."""
        self.writer = writer
        self.curve = [from_record(record) for record in writer.journal.records]
        if self.stop is not None and writer.state.round > self.stop.round:
            raise ConfigError(f"{writer.state.round} rounds are played already, and {self.stop}", key=KEY)
        if writer.state.round:
            self.state = writer.state.to(self.device)
        return self.play()

    def play(self) -> Trained:
        try:
            while self.state.round < self.last:
                self.block()
        except KeyboardInterrupt:
            if self.writer is not None and self.state.round:
                self.writer.save(self.state, due=True)
            raise
        return self.result()

    def block(self) -> None:
        begin, first = time.perf_counter(), self.state.round
        rounds = min(self.next_stop(first) - first, self.setup.engine.most())
        state, outcomes = self.setup.engine.block(self.state, rounds)
        accuracy, worst = self.evaluator.accuracy(state) if self.is_evaluated(state.round) else (None, None)
        seconds = (time.perf_counter() - begin) / rounds
        results = [round_result(outcome, seconds) for outcome in outcomes[:-1]]
        self.record(state, [*results, round_result(outcomes[-1], seconds, accuracy, worst)])

    def record(self, state: State, results: Sequence[RoundResult]) -> None:
        """The journal first: a state must not know of more rounds than it."""
        if self.writer is not None:
            self.writer.write([as_record(result, self.federation.seed) for result in results])
        self.state = state
        self.curve += results
        if self.writer is not None and state.round in self.saved:
            self.writer.home.save_checkpoint(state.round, model_at(self.setup.model, state, self.federation))
        if self.writer is not None:
            self.writer.save(state, due=state.round in self.saved or state.round == self.last)
        if self.on_round is not None:
            for result in results:
                self.on_round(result)

    def next_stop(self, round: int) -> int:
        """The next round after which the model is evaluated or saved."""
        evaluated = (round // self.evaluate_every + 1) * self.evaluate_every
        saved = [r for r in self.saved if r > round]
        return min([evaluated, self.last, *saved])

    def is_evaluated(self, round: int) -> bool:
        return round % self.evaluate_every == 0 or round == self.last

    def result(self) -> Trained:
        home = None if self.writer is None else self.writer.home
        paths = {} if home is None else {r: home.checkpoint(r) for r in sorted(self.saved)}
        ended = () if self.stop is None else (str(self.stop),)
        notes = (*self.setup.notes, *getattr(self.setup.engine, "notes", ()), *ended)
        model = model_at(self.setup.model, self.state, self.federation)
        return Trained(model=model, curve=tuple(self.curve), checkpoints=paths, notes=notes)


def round_result(
    outcome: Outcome, seconds: float, accuracy: float | None = None, worst: float | None = None
) -> RoundResult:
    return RoundResult(
        round=outcome.round,
        loss=outcome.loss,
        accuracy=accuracy,
        seconds=seconds,
        dropped=len(outcome.dropped),
        names=outcome.dropped,
        void=outcome.void,
        worst=worst,
    )
