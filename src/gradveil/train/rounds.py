"""One training run: rounds in blocks, the model evaluated between them, and what is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gradveil.train.evaluation import Evaluator, model_at
from gradveil.train.folder import RoundWriter
from gradveil.train.result import RoundResult, Trained, as_record, from_record
from gradveil.train.settings import Federation
from gradveil.train.setup import Setup
from gradveil.train.state import Outcome, State

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
    writer: RoundWriter | None = None  # None: nothing is stored
    curve: list[RoundResult] = field(default_factory=list)

    def resume(self, writer: RoundWriter) -> Trained:
        """Go on from what the folder holds, and write everything into it."""
        self.writer = writer
        self.curve = [from_record(record) for record in writer.journal.records]
        if writer.state.round:
            self.state = writer.state.to(self.device)
        return self.play()

    def play(self) -> Trained:
        try:
            while self.state.round < self.federation.rounds:
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
        if self.writer is not None and state.round in self.checkpoints:
            self.writer.home.save_checkpoint(state.round, model_at(self.setup.model, state, self.federation))
        if self.writer is not None:
            self.writer.save(state, due=state.round in self.checkpoints or state.round == self.federation.rounds)
        if self.on_round is not None:
            for result in results:
                self.on_round(result)

    def next_stop(self, round: int) -> int:
        """The next round after which the model is evaluated or saved."""
        evaluated = (round // self.evaluate_every + 1) * self.evaluate_every
        saved = [r for r in self.checkpoints if r > round]
        return min([evaluated, self.federation.rounds, *saved])

    def is_evaluated(self, round: int) -> bool:
        return round % self.evaluate_every == 0 or round == self.federation.rounds

    def result(self) -> Trained:
        home = None if self.writer is None else self.writer.home
        paths = {} if home is None else {r: home.checkpoint(r) for r in sorted(self.checkpoints)}
        notes = (*self.setup.notes, *getattr(self.setup.engine, "notes", ()))
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
