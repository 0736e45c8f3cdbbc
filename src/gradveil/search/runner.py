"""Where tasks become records: what is in the journal is not done again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean

from gradveil.audit.plan import Cell
from gradveil.audit.trial import Trial
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.parallel.pool import Fanout
from gradveil.experiment.progress import Progress
from gradveil.experiment.record import Record
from gradveil.search.scoring import Kind, Scorer, Task
from gradveil.transforms.library import Library, library_of
from gradveil.transforms.policy import Policy

TOGETHER, ON_A_GPU = 4, 16  # tasks of a job: so many are lost by a kill, and a process is worth starting for them
Timed = tuple[dict[str, float], float]  # what a task found, and its seconds


@dataclass(kw_only=True)
class Desk:
    """One search's way from tasks to numbers."""

    home: RunFolder
    journal: Journal
    fanout: Fanout
    progress: Progress
    scorer: Scorer
    parts: tuple[range, ...]  # the pictures of the privacy score, in the blocks that are written at once
    done: dict[str, Record] = field(init=False)

    def __post_init__(self) -> None:
        self.done = {record.key: record for record in self.journal.records}

    def run(self, name: str, tasks: Sequence[Task]) -> None:
        """Every task that has no record yet."""
        self.progress.start(name, len(tasks))
        missing = list({task.key: task for task in tasks if task.key not in self.done}.values())
        size = ON_A_GPU if self.scorer.on_gpu else TOGETHER
        jobs = [tuple(missing[first : first + size]) for first in range(0, len(missing), size)]
        if jobs:
            self.scorer.warm(jobs[0][0].kind)
        left = len(missing)
        for job, found in self.fanout.each(partial(each, self.scorer), jobs):
            self.keep([self.record(task, *timed) for task, timed in zip(job, found, strict=True)])
            left -= len(job)
            self.progress.step(len(missing) - left, len(missing))
        self.progress.done(len(tasks), sum(self.done[task.key].status == "failed" for task in tasks))

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

    def keep(self, records: Sequence[Record]) -> None:
        self.journal.extend(records)
        self.done |= {record.key: record for record in records}

    def above(self, kind: Kind, policies: Sequence[Policy], least: float) -> list[Policy]:
        """Those whose mean score is at least so high."""
        return [policy for policy in policies if (found := self.mean(kind, policy)) is not None and found >= least]

    def mean(self, kind: Kind, policy: Policy) -> float | None:
        record = self.done.get(Task(kind, str(policy)).key)
        return mean(record.scores.values()) if record is not None and record.scores else None

    def areas(self, policy: Policy, images: int) -> list[float] | None:
        """Of the first pictures, in order; None where one could not be computed."""
        found: dict[int, float] = {}
        for part in self.parts:
            record = self.done.get(Task("privacy", str(policy), part.start, part.stop).key)
            found |= {} if record is None else {int(place): area for place, area in record.scores.items()}
        wanted = range(images)
        return [found[place] for place in wanted] if all(place in found for place in wanted) else None

    @property
    def library(self) -> Library:
        return library_of(self.scorer.library)

    @property
    def failed(self) -> int:
        """Policies without a finite score."""
        return len({r.defense for r in self.done.values() if r.status == "failed" and r.scenario == "search"})

    def attack(self, groups: Sequence[list[Cell]], work: Callable[[list[Cell]], list[Trial]]) -> None:
        """Cells of a confirmation, as an audit runs them."""
        missing = [group for group in groups if not all(key in self.done for cell in group for key in cell.keys)]
        self.progress.start("confirmation", len(groups))
        failed = 0
        for finished, (_, trials) in enumerate(self.fanout.each(work, missing), 1):
            for trial in trials:
                new = [record for record in trial.records if record.key not in self.done]
                if new and trial.pictures:
                    self.home.save_pictures(trial.file, trial.pictures)
                self.keep(new)
                failed += sum(record.status == "failed" for record in new)
            self.progress.step(finished, len(missing))
        self.progress.done(len(groups), failed)


def each(scorer: Scorer, job: tuple[Task, ...]) -> list[Timed]:
    """Every task's scores and its share of the time."""
    start = time.monotonic()
    found = scorer(job)
    share = (time.monotonic() - start) / len(job)
    return [(scores, share) for scores in found]
