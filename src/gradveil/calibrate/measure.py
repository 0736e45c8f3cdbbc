"""From a family and a bench to its curve: what the journal holds is not measured again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gradveil.calibrate.bench import Bench, Group, fit_ladder, shrink
from gradveil.calibrate.curve import Additive, count_named, find_additive, strengths_of
from gradveil.calibrate.family import KEY, Family
from gradveil.calibrate.ladder import hold_group, search_ladder
from gradveil.calibrate.outcome import Calibrated, Step, least_strengths, smooth
from gradveil.calibrate.settings import check_limit, check_pictures
from gradveil.core.errors import ConfigError, NotApplicableError
from gradveil.dp.audited_round import certify_round
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.record import Record
from gradveil.experiment.runner import Runner

NAME, CURVE = "line-up", "curve"
SLOW = 4.0  # seconds of a job, from which on processes are worth their start
FLAGS = {"bound": "line-up-bound", "estimated": "line-up-estimated"}


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a worker needs: one group at a time, at all strengths by one pass or at one."""

    bench: Bench
    family: Family
    additive: Additive | None

    def __call__(self, job: Job) -> list[Record]:
        start = time.monotonic()
        group = self.bench.groups[job.group]
        found = [self._pass(job, group)] if job.strengths else list(self._hold(job, group))
        share = (time.monotonic() - start) / len(found)
        return [record_of(job, self.bench, seconds=share, **one) for one in found]

    def _pass(self, job: Job, group: Group) -> dict[str, Any]:
        assert self.additive is not None
        counts = count_named(self.additive, self.bench, group, job.strengths)
        named = {f"{s:g}": count for s, count in zip(job.strengths, counts, strict=True)}
        return {"client": group.name, "scores": {**named, "pictures": float(group.pictures)}}

    def _hold(self, job: Job, group: Group) -> Iterator[dict[str, Any]]:
        held = hold_group(self.bench, group, self.family.build(job.value))
        flags = tuple(FLAGS[kind] for kind in [held.kind] if kind in FLAGS)
        for one in held.ranks:
            ranks = {"candidates": [one.candidates], "rank": list(one.ranks)}
            yield {"client": one.client, "example": one.example, "ranks": ranks, "flags": flags}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One group: at all strengths of a curve, or at one value."""

    label: str  # of the family, in keys
    group: int
    value: Any = None
    strengths: tuple[float, ...] = ()

    @property
    def key(self) -> str:
        """All but the client."""
        return f"{NAME}/{self.label}/{CURVE if len(self.strengths) > 1 else show(self.value)}/{NAME}"


def record_of(job: Job, bench: Bench, client: str, example: int = 0, **outcome: Any) -> Record:
    return Record(key=f"{job.key}/{client}/{example}", status="ok", scenario=NAME, defense=job.label, attack=NAME,
                  attacker="adaptive", control="lineup", client=client, example=example, backend="",
                  seed=bench.seed.number(), **outcome)  # fmt: skip


def show(value: Any) -> str:
    """A strength in keys and for readers."""
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


@dataclass(kw_only=True)
class Calibrator:
    """Finds the strength of one family. `label` tells the families of one journal apart."""

    runner: Runner
    bench: Bench
    family: Family
    limit: float
    label: str
    curve: bool = True  # also where no strength is enough
    may_shrink: bool = True  # use fewer candidates where every strength takes a line-up of its own
    ladder: tuple[Any, ...] = field(init=False)
    work: Work = field(init=False)

    def __post_init__(self) -> None:
        self.ladder = fit_ladder(self.family, self.bench.scenario)
        additive = find_additive(self.bench, self.family, self.ladder)
        if additive is None and self.may_shrink:
            self.bench = shrink(self.bench, self.limit)
        self.work = Work(bench=self.bench, family=self.family, additive=additive)

    def find(self) -> Calibrated:
        check_pictures(self.limit, self.bench.pictures)
        check_limit(self.limit, self.bench.candidates)
        if self.work.additive is not None:
            return self._conclude("one pass", self._pass(strengths_of(self.ladder)), "exact")
        steps: dict[Any, Step] = {}

        def is_enough(value: Any) -> bool:
            if value not in steps:
                steps[value] = self._hold(value)
            return steps[value].at_most <= self.limit

        search_ladder(self.ladder, is_enough, self.curve)
        return self._conclude("ladder", [steps[v] for v in self.ladder if v in steps], self._kind())

    def measure(self, value: Any) -> Step:
        """At one strength alone."""
        return self._hold(value) if self.work.additive is None else self._pass([value], value)[0]

    def _pass(self, strengths: Sequence[float], value: Any = None) -> list[Step]:
        jobs = [Job(label=self.label, group=n, value=value, strengths=tuple(strengths)) for n in self._groups]
        records = self._run(jobs)
        pictures = int(sum(record.scores["pictures"] for record in records))
        return [Step(strength=s, named=sum(r.scores[f"{s:g}"] for r in records), pictures=pictures) for s in strengths]

    def _hold(self, value: Any) -> Step:
        records = self._run([Job(label=self.label, group=n, value=value) for n in self._groups])
        ranks = [rank for record in records for rank in record.ranks["rank"]]
        return Step(strength=value, named=sum(rank == 1 for rank in ranks), pictures=len(ranks))

    @property
    def _groups(self) -> range:
        return range(len(self.bench.groups))

    def _run(self, jobs: Sequence[Job]) -> list[Record]:
        """Of all groups, in their order."""
        missing = [job for job in jobs if not self.runner.is_done(self._keys(job))]
        for job, records in self._compute(missing):
            self.runner.keep(records)
            self.runner.progress.done(self.bench.groups[job.group].pictures, 0)
        return [self.runner.done[key] for job in jobs for key in self._keys(job)]

    def _compute(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Record]]]:
        """Here as long as jobs are over sooner than a process would have started, then in the pool."""
        describe, here, start = partial(_describe, self.bench), Pool(), time.monotonic()
        for at, job in enumerate(jobs):
            if time.monotonic() - start > SLOW * max(1, at):
                yield from self.runner.each(self.work, jobs[at:], _give_up, describe)
                return
            self.runner.progress.start(*describe(job))
            yield from here.each(self.work, [job], _give_up)

    def _keys(self, job: Job) -> list[str]:
        group = self.bench.groups[job.group]
        clients = [group.name] if job.strengths else [place.client for place in group.places]
        return [f"{job.key}/{client}/0" for client in clients]

    def _kind(self) -> str:
        flags: Mapping[str, str] = {flag: kind for kind, flag in FLAGS.items()}
        raised = {flag for r in self.runner.done.values() if r.defense == self.label for flag in r.flags}
        return next((kind for flag, kind in flags.items() if flag in raised), "exact")

    def _conclude(self, way: Any, steps: Sequence[Step], kind: str) -> Calibrated:
        curve = smooth(steps)
        enough, likely, at_least = least_strengths(curve, self.limit)
        best = (enough or curve[-1]).strength
        certificate = certify_round(self.bench.scenario, self.family.build(best), self.bench.candidates)
        return Calibrated(option=self.family.option, way=way, kind=kind, limit=self.limit, curve=curve, enough=enough,
                          likely=likely, at_least=at_least, candidates=self.bench.candidates,
                          choice=self.family.at(best), certificate=certificate if enough else None)  # fmt: skip


def _describe(bench: Bench, job: Job) -> tuple[str, int]:
    group = bench.groups[job.group]
    return f"{job.label} {'' if job.value is None else show(job.value)}".strip(), group.pictures


def _give_up(job: Job, why: str) -> list[Record]:
    raise ConfigError(f"{job.label}: {why}", key=KEY)


def calibrate_family(
    runner: Runner, bench: Bench, family: Family, limit: float, *, label: str = "", **options: bool
) -> Calibrated:
    """The least strength of a family that is enough; ConfigError where no likelihood is known of what it draws.

    label: names the family in the journal; options: `curve` and `may_shrink` of `Calibrator`
    """
    name = label or family.choice.name
    try:
        return Calibrator(runner=runner, bench=bench, family=family, limit=limit, label=name, **options).find()
    except NotApplicableError as error:
        raise ConfigError(f"{family.choice.name}: cannot be calibrated, {error.message}", key=KEY) from error
