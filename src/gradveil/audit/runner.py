"""Runs the shards of an audit that are not in the journal yet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gradveil.audit.memory import Memory
from gradveil.audit.plan import Cell
from gradveil.audit.score import Judge
from gradveil.audit.speed import Speed
from gradveil.audit.trial import Trial, fail_cell, run_cell
from gradveil.audit.verdict.leak import CLOSENESS, Baselines, closeness
from gradveil.experiment.record import Record
from gradveil.experiment.runner import Runner

Group = list[Cell]  # the attackers of one shard


def count_missing(runner: Runner, waves: Sequence[Sequence[Group]]) -> int:
    """Shards that are not done yet."""
    return sum(not is_done(runner, group) for wave in waves for group in wave)


def run_waves(runner: Runner, waves: Sequence[Sequence[Group]], judge: Judge) -> None:
    """One wave after the other; what one has recovered whole is no longer attacked in the next."""
    tried: set[str] = set()
    speed, waiting = Speed(), [group for wave in waves for group in wave if not is_done(runner, group)]
    for wave in waves:
        remaining = [leave_out_leaked(group, tried, runner.journal.records) for group in wave] if tried else wave
        missing = [group for group in remaining if not is_done(runner, group)]
        for group, trials in runner.each(partial(attack, judge=judge), missing, fail_group, describe):
            records = keep_trials(runner, trials)
            speed.learn(group, trials, None)
            waiting = [one for one in waiting if not is_done(runner, one)]
            if (left := speed.expect(waiting)) is not None:
                runner.progress.expect(left / max(1, runner.pool.workers))
            runner.progress.done(len(records), sum(record.status == "failed" for record in records))
        tried |= {group[0].attack for group in wave if not _is_left_whole(group)}


def leave_out_leaked(group: Group, tried: set[str], records: Sequence[Record]) -> Group:
    """The shard without the clients that the attacks before this one have recovered whole; a control is left whole."""
    if _is_left_whole(group):
        return group
    cell, baselines = group[0], Baselines.of(records)
    audited = (cell.scenario.name, cell.label, "")
    leaked = {
        (r.client, r.example)
        for r in records
        if (r.scenario, r.defense, r.control) == audited and r.attack in tried and baselines.is_whole(r)
    }
    examples = range(cell.scenario.private.images.shape[1])
    hidden = [name for name in cell.scenario.names if any((name, example) not in leaked for example in examples)]
    return [one.only(hidden) for one in group] if hidden else []


def _is_left_whole(group: Group) -> bool:
    """Whether it shows what an attack is worth: then nobody drops out."""
    return bool(group[0].is_control or group[0].control)


def attack(group: Group, judge: Judge) -> list[Trial]:
    """Every attacker of the shard; one that would only repeat the first gets its outcome.

    One who knows the defense may also ignore it: it is given what the first has found instead of searching again.
    """
    unaware = Memory()
    first = run_cell(group[0], judge, unaware)
    trials = list(first)
    for cell in group[1:]:
        trials += [trial.repeat_as(cell) for trial in first] if cell.repeats else run_cell(cell, judge, unaware)
    return trials


def fail_group(group: Group, why: str) -> list[Trial]:
    return [trial for cell in group for trial in fail_cell(cell, why)]


def describe(group: Group) -> tuple[str, int]:
    """The name of a shard and the number of its trials, for the progress."""
    return group[0].name, len(group[0].scenario.names)


def is_done(runner: Runner, group: Group) -> bool:
    return all(runner.is_done(cell.keys) for cell in group)


def keep_trials(runner: Runner, trials: Sequence[Trial]) -> list[Record]:
    """Write each trial's pictures and then its records; all records, those that were there already among them."""
    new = [trial for trial in trials if not runner.is_done(record.key for record in trial.records)]
    for trial in trials:
        save = partial(runner.home.save_pictures, trial.file, trial.pictures) if trial.pictures else None
        runner.keep(trial.records, save)
    show_worst(runner, new)
    return [record for trial in trials for record in trial.records]


def show_worst(runner: Runner, trials: Sequence[Trial]) -> None:
    """The progress gets the reconstruction that is nearer to its original than all before it."""
    pictured = [trial for trial in trials if trial.pictures]
    shown = [(closeness(r) or 0.0, r, trial) for trial in pictured for r in trial.records if not r.control]
    if not shown:
        return
    own = {record.key for _, record, _ in shown}
    before = [closeness(r) or 0.0 for r in runner.journal.records if not r.control and r.key not in own]
    best, record, trial = max(shown, key=lambda one: one[0])
    if best > max(before, default=0.0):
        words = f"{record.defense} / {record.attack} / {record.client}: {CLOSENESS.label} {best:.{CLOSENESS.digits}f}"
        runner.progress.show(trial.pictures["reconstructed"][record.example], words)
