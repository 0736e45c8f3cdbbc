"""An audit in limited time: what is cheap first, then searches with growing effort over all cells.

Closed forms and line-ups come first, each within a share of the time. Then rung after rung of `gradveil.audit.ladder`
over every defense and attacker, the clients first that the rung before explained best, as the attacker sees it; then
the rest of the audit as it is without a limit. A picture that a smaller effort hits gets that effort's controls at once
and counts when they are there; where nothing is hit they would show nothing. What would not end in time is not begun,
and what has not ended by then is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gradveil.audit.ladder import RUNGS, rungs_of, takes_steps
from gradveil.audit.lineup import describe_lineup, fail_lineup, hold_lineup
from gradveil.audit.lineup_plan import LineUpCell
from gradveil.audit.order import by_defense, is_passed, most_promising, order_whole
from gradveil.audit.pieces import Group, all_pieces, controls_of, divide_lineup, rung_shards
from gradveil.audit.runner import attack, describe, fail_group, is_done, keep_trials, leave_out_leaked
from gradveil.audit.score import Judge
from gradveil.audit.speed import Speed
from gradveil.audit.verdict.leak import Baselines
from gradveil.core.compute import Compute
from gradveil.core.time_limit import OutOfTime, TimeLimit
from gradveil.experiment.record import Control
from gradveil.experiment.runner import Runner
from gradveil.lineup.candidates import Gallery

if TYPE_CHECKING:
    from gradveil.audit.audit import Audit

CLOSED, LINED_UP = 0.25, 0.5  # of the time: then closed forms, then line-ups make way for the searches
AHEAD, ON_A_CLUSTER = 4, 64  # pieces that are begun before anybody looks again: for each worker, and on a cluster
VETTING: tuple[Control, ...] = ("random", "prior")  # the last one says that all are there
Job = Group | LineUpCell


@dataclass(kw_only=True)
class Anytime:
    """One run. shard: clients in a shard of the audit; size: clients in a piece of it."""

    runner: Runner
    audit: Audit
    compute: Compute
    limit: TimeLimit
    judge: Judge
    gallery: Gallery | None
    shard: int
    size: int
    speed: Speed = field(default_factory=Speed)
    time_given: float = field(init=False)  # seconds that there were at the start

    def __post_init__(self) -> None:
        self.time_given = self.limit.remaining

    def remaining(self, share: float = 1.0) -> float:
        """Seconds until this share of the time is over."""
        return self.limit.remaining - (1 - share) * self.time_given

    def play(self, groups: Iterable[Group], lineups: Iterable[LineUpCell]) -> None:
        pieces = all_pieces(groups, self.size)
        held = by_defense(one for cell in lineups for one in divide_lineup(cell, self.size))
        self._attack(order_whole(self.audit, [one for one in pieces if not takes_steps(one[0].method)]), CLOSED)
        self._line_up(held, LINED_UP)
        for rung in RUNGS:
            self._climb(rung)
        self._line_up(held)
        self._attack(order_whole(self.audit, pieces, self.runner.journal.records))

    def _climb(self, rung: int) -> None:
        """One effort over all cells, on clients that are neither recovered whole nor searched with more."""
        if not rungs_of(self.audit.attacks, rung) or self.remaining() <= 0:
            return
        groups = rung_shards(self.audit, rung, self.compute, self.shard)
        pieces = [one for one in all_pieces(groups, self.size) if not is_passed(one, self.runner.done)]
        records = self.runner.journal.records
        self._vet([one for one in pieces if is_done(self.runner, one)])
        tried = {record.attack for record in records}
        self._attack([(one, tried) for one in most_promising(pieces, records)], after=self._vet)

    def _vet(self, groups: Sequence[Group]) -> None:
        """The controls of what a smaller effort has hit."""
        records = self.runner.journal.records
        baselines = Baselines.of(records)
        for cell in (group[0] for group in groups):
            own = (r for r in records if (r.scenario, r.defense, r.attack, r.control) == (*cell.place[:3], ""))
            hit = {r.client for r in own if r.client in cell.scenario.names and baselines.is_unvetted_hit(r)}
            for kind in VETTING if hit else ():
                self._attack([(one, set()) for one in controls_of(self.audit, cell, hit, kind)])

    def _attack(
        self,
        waiting: Sequence[tuple[Group, set[str]]],
        share: float = 1.0,
        after: Callable[[Sequence[Group]], None] | None = None,
    ) -> None:
        """One batch after the other, each group without the clients that the attacks named beside it recovered."""

        def prepare(one: tuple[Group, set[str]]) -> Group:
            group, tried = one
            if tried:
                scenario, label = group[0].place[:2]
                records = (r for r in self.runner.journal.records if r.scenario == scenario)
                group = leave_out_leaked(group, tried, [r for r in records if r.control or r.defense == label])
            return [] if is_done(self.runner, group) else group

        def keep(trials: Any) -> tuple[int, int]:
            records = keep_trials(self.runner, trials)
            return len(records), sum(record.status == "failed" for record in records)

        work = partial(attack, judge=self.judge)
        self._run(map(prepare, waiting), (work, fail_group, describe, keep), share, after)

    def _line_up(self, cells: Sequence[LineUpCell], share: float = 1.0) -> None:
        def keep(records: Any) -> tuple[int, int]:
            self.runner.keep(records)
            return len(records), sum(record.status == "failed" for record in records)

        if self.gallery is not None:
            missing = [one for one in cells if not self.runner.is_done(one.own_keys)]
            work = partial(hold_lineup, gallery=self.gallery)
            self._run(missing, (work, fail_lineup, describe_lineup, keep), share)

    def _run(
        self, jobs: Iterable[Any], how: tuple[Any, ...], share: float, after: Callable[[Any], None] | None = None
    ) -> None:
        """What fits into the time, a batch at once; what did not end in it is known to take longer."""
        work, give_up, describe_job, keep = how
        for batch in self._batches(jobs, share):
            begun, left = self.limit.elapsed, list(batch)
            try:
                until = time.monotonic() + self.remaining(share)
                for job, results in self.runner.each(work, batch, give_up, describe_job, until):
                    self.runner.progress.done(*keep(results))
                    left = [one for one in left if one is not job]
                    self.speed.learn(job, results, self.limit.elapsed - begun if len(batch) == 1 else None)
            except OutOfTime:
                for job in left:
                    self.speed.learn_least(job, self.limit.elapsed - begun)
                return
            if after is not None:
                after(batch)

    def _fits(self, job: Job, share: float) -> bool:
        """By what others of its kind took. Who knows of none tries: time that nobody uses shows nothing. Only a line-up
        that would hold up the searches is put off on a guess."""
        if not self.speed.is_measured(job) and (share == 1.0 or not isinstance(job, LineUpCell)):
            return True
        return self.speed.estimate(job) <= self.remaining(share)

    def _batches(self, jobs: Iterable[Any], share: float) -> Iterable[list[Any]]:
        pool, batch = self.runner.pool, list[Any]()
        most = ON_A_CLUSTER if pool.ray else max(1, AHEAD * pool.workers)
        for job in jobs:
            if self.remaining(share) <= 0:
                return
            if job and self._fits(job, share):
                batch.append(job)
            if len(batch) == most:
                yield batch
                batch = []
        if batch:
            yield batch
