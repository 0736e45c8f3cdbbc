"""From tasks of a search to numbers: every policy's scores, and what the attacks of the confirmation saw."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean

from gradveil.audit.plan import Cell
from gradveil.audit.runner import is_done, keep_trials
from gradveil.audit.trial import Trial
from gradveil.experiment.record import Record
from gradveil.experiment.runner import Runner
from gradveil.search.scoring import Kind, Scorer, Task
from gradveil.transforms.library import Library, library_of
from gradveil.transforms.policy import Policy

TOGETHER, ON_A_GPU = 4, 16  # tasks of a job: so many are lost by a kill, and a process is worth starting for them
Timed = tuple[dict[str, float], float]  # the numbers of a task, and its seconds


@dataclass(frozen=True, kw_only=True)
class SearchRunner:
    """Scores policies and reads their scores back. `parts` are the blocks of pictures of the privacy score."""

    runner: Runner
    scorer: Scorer
    parts: tuple[range, ...]
    until: float = math.inf  # on the clock of `time.monotonic`; then OutOfTime

    def score(self, name: str, tasks: Sequence[Task]) -> None:
        """Every task that has no record yet; `name` is what the progress calls them."""
        runner, progress = self.runner, self.runner.progress
        progress.start(name, len(tasks))
        missing = list({task.key: task for task in tasks if task.key not in runner.done}.values())
        size = ON_A_GPU if self.scorer.on_gpu else TOGETHER
        jobs = [tuple(missing[first : first + size]) for first in range(0, len(missing), size)]
        if jobs:
            self.scorer.warm(jobs[0][0].kind)
        remaining = len(missing)
        for job, results in runner.each(partial(score_each, self.scorer), jobs, until=self.until):
            runner.keep([self.record(task, *timed) for task, timed in zip(job, results, strict=True)])
            remaining -= len(job)
            progress.step(len(missing) - remaining, len(missing))
        progress.done(len(tasks), sum(runner.done[task.key].status == "failed" for task in tasks))

    def record(self, task: Task, scores: dict[str, float], seconds: float) -> Record:
        """One line of the journal: a policy on a block of pictures, with one number per picture."""
        finite = all(map(math.isfinite, scores.values()))
        return Record(
            key=task.key,
            status="ok" if finite else "failed",
            scenario="search",
            defense=task.policy,
            attack=f"{task.kind}-score",
            attacker=self.scorer.against,
            client=f"{task.first}-{task.end}",
            example=task.first,
            seed=0,
            seconds=seconds,
            backend=self.scorer.backend(task.kind),
            scores=scores if finite else {},
            reason="" if finite else "a score is not finite",
        )

    def above(self, kind: Kind, policies: Sequence[Policy], least: float) -> list[Policy]:
        """Those whose mean score is at least so high."""
        return [policy for policy in policies if (score := self.mean(kind, policy)) is not None and score >= least]

    def mean(self, kind: Kind, policy: Policy) -> float | None:
        record = self.runner.done.get(Task(kind, str(policy)).key)
        return mean(record.scores.values()) if record is not None and record.scores else None

    def areas(self, policy: Policy, images: int) -> list[float] | None:
        """Of the first pictures, in order; None where one could not be computed."""
        found: dict[int, float] = {}
        for part in self.parts:
            record = self.runner.done.get(Task("privacy", str(policy), part.start, part.stop).key)
            found |= {} if record is None else {int(place): area for place, area in record.scores.items()}
        wanted = range(images)
        return [found[place] for place in wanted] if all(place in found for place in wanted) else None

    @property
    def library(self) -> Library:
        return library_of(self.scorer.library)

    @property
    def failed(self) -> int:
        """Policies without a finite score."""
        records = self.runner.done.values()
        return len({r.defense for r in records if r.status == "failed" and r.scenario == "search"})

    def attack(self, groups: Sequence[list[Cell]], work: Callable[[list[Cell]], list[Trial]]) -> None:
        """Cells of a confirmation, as an audit runs them."""
        runner, progress = self.runner, self.runner.progress
        missing = [group for group in groups if not is_done(runner, group)]
        progress.start("confirmation", len(groups))
        failed = 0
        for finished, (_, trials) in enumerate(runner.each(work, missing, until=self.until), 1):
            failed += sum(record.status == "failed" for record in keep_trials(runner, trials))
            progress.step(finished, len(missing))
        progress.done(len(groups), failed)


def score_each(scorer: Scorer, job: tuple[Task, ...]) -> list[Timed]:
    """Every task's scores and its share of the time."""
    start = time.monotonic()
    found = scorer(job)
    share = (time.monotonic() - start) / len(job)
    return [(scores, share) for scores in found]
