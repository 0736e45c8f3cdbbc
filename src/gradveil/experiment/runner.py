"""From tasks to records: what is in the journal is not done again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gradveil.core.progress import listening
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.progress import Progress
from gradveil.experiment.provenance import BRIEF
from gradveil.experiment.record import Record

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(kw_only=True)
class Runner:
    """What `Experiment.play` works with: the folder, its journal, the pool that computes, and the progress.

    `done` holds every record of the journal by its key; `origin` is what provenance.json says of this run.
    """

    home: RunFolder
    journal: Journal
    pool: Pool
    progress: Progress
    origin: Mapping[str, Any] = field(default_factory=dict)
    done: dict[str, Record] = field(init=False)

    def __post_init__(self) -> None:
        self.done = {record.key: record for record in self.journal.records}

    def is_done(self, keys: Iterable[str]) -> bool:
        return all(key in self.done for key in keys)

    def forget(self, keys: Iterable[str]) -> None:
        """These are computed again: their files are gone or have changed."""
        for key in keys:
            self.done.pop(key, None)

    def each(
        self,
        work: Callable[[Job], Result],
        jobs: Sequence[Job],
        give_up: Callable[[Job, str], Result] | None = None,
        describe: Callable[[Job], tuple[str, int]] | None = None,
        until: float = math.inf,
    ) -> Iterator[tuple[Job, Result]]:
        """Every job with its result, see `Pool.each`. Where `describe` gives the name and size of a job, the progress
        shows each job by itself, and in this process its steps."""

        def on_start(job: Job) -> None:
            if describe is not None:
                self.progress.start(*describe(job))

        hears = describe is not None and not self.pool.spread  # a process of its own would write into our terminal
        with listening(self.progress.step) if hears else nullcontext():
            yield from self.pool.each(work, jobs, give_up, on_start, until)

    def keep(self, records: Iterable[Record], write_files: Callable[[], None] | None = None) -> list[Record]:
        """Add the new ones among the records to the journal, and return them.

        `write_files` is called before, if any is new: no record names a file that is not there.
        """
        new = [record for record in records if record.key not in self.done]
        if new and write_files is not None:
            write_files()
        if new:
            self.journal.extend(new)
            self.done |= {record.key: record for record in new}
        return new

    @property
    def brief_origin(self) -> dict[str, Any]:
        """The versions and hashes that a result file repeats."""
        return {key: self.origin[key] for key in BRIEF}
