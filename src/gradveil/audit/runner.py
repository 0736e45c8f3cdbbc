"""Runs the shards of a plan that are not in the journal yet, here or in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from gradveil.audit.plan import Cell
from gradveil.audit.trial import Judge, Trial, failed, run_cell
from gradveil.audit.verdict.leak import Baselines
from gradveil.core.compute import Compute
from gradveil.core.progress import listening
from gradveil.core.threads import threads
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.parallel import processes as workers
from gradveil.experiment.parallel.pool import Fanout
from gradveil.experiment.progress import Progress

Group = list[Cell]  # the attackers of one shard


@dataclass(frozen=True)
class Runner:
    """One run's way from cells to records."""

    home: RunFolder
    journal: Journal
    judge: Judge
    compute: Compute
    progress: Progress

    def run(self, waves: Sequence[Sequence[Group]]) -> None:
        """One wave after the other; what has leaked in one is no longer attacked in the next."""
        done = {record.key for record in self.journal.records}
        self.progress.begin(sum(not _is_done(group, done) for wave in waves for group in wave))
        tried: set[str] = set()
        try:
            for wave in waves:
                left = [self.still_hidden(group, tried) for group in wave] if tried else wave
                missing = [group for group in left if not _is_done(group, done)]
                for trials in self.elsewhere(missing) if self.compute.spread else self.here(missing):
                    self.keep(trials, done)
                tried |= {group[0].attack for group in wave if not group[0].control}
        finally:
            self.progress.end()

    def still_hidden(self, group: Group, tried: set[str]) -> Group:
        """The shard without the clients that the attacks before this one have recovered whole."""
        cell, baselines = group[0], Baselines.of(self.journal.records)
        here = (cell.scenario.name, cell.label, "")
        leaked = {
            (r.client, r.example)
            for r in self.journal.records
            if (r.scenario, r.defense, r.control) == here and r.attack in tried and baselines.is_leaked(r)
        }
        examples = range(cell.scenario.private.images.shape[1])
        hidden = [name for name in cell.scenario.names if any((name, example) not in leaked for example in examples)]
        return [one.only(hidden) for one in group] if hidden else []

    def here(self, groups: Sequence[Group]) -> Iterator[list[Trial]]:
        """Beside us, so that Ctrl-C is heard at once."""
        with threads(1, of_torch=torch.get_num_threads()) as submit:
            for group in groups:
                self.progress.start(group[0].name, len(group[0].scenario.names))
                with listening(self.progress.step):
                    yield submit(attack, group, self.judge).result()

    def elsewhere(self, groups: Sequence[Group]) -> Iterator[list[Trial]]:
        """In processes of this machine, or on a Ray cluster."""

        def gave_up(group: Group, why: str) -> list[Trial]:
            return [trial for cell in group for trial in failed(cell, why)]

        work = partial(attack, judge=self.judge)
        if self.compute.ray:
            done = fanout_of(self.compute).each(work, groups, gave_up)
        else:
            done = workers.each(work, groups, self.compute.workers, gave_up, self.compute.limit)
        for group, trials in done:
            self.progress.start(group[0].name, len(group[0].scenario.names))
            yield trials

    def keep(self, trials: list[Trial], done: set[str]) -> None:
        for trial in trials:
            new = [record for record in trial.records if record.key not in done]
            if new and trial.pictures:  # before the records, so that no record names a file that is not there
                self.home.save_pictures(trial.file, trial.pictures)
            for record in new:
                self.journal.append(record)
                done.add(record.key)
        records = [record for trial in trials for record in trial.records]
        self.progress.done(len(records), sum(record.status == "failed" for record in records))


def fanout_of(compute: Compute) -> Fanout:
    """Where shards run; on a cluster a GPU each, where GPUs are asked for."""
    return Fanout(workers=compute.workers, ray=compute.ray, gpus=float(compute.device.startswith("cuda")))


def attack(group: Group, judge: Judge) -> list[Trial]:
    """Every attacker of the shard; one that would only repeat the first is told its outcome."""
    first = run_cell(group[0], judge)
    trials = list(first)
    for cell in group[1:]:
        trials += [t.told_again(cell) for t in first] if cell.repeats else run_cell(cell, judge)
    return trials


def _is_done(group: Group, done: set[str]) -> bool:
    return all(key in done for cell in group for key in cell.keys)
