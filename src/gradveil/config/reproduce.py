"""One trial of a run, computed again and held against what the run has stored. Nothing is written.

from gradveil.config.reproduce import reproduce
comparison = reproduce("runs/mine", "photos-lenet-b1/none/dlg/unaware/c0003/0")
print(comparison.summary)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from gradveil.audit.audit import Audit, judge_of, origin_of
from gradveil.audit.ladder import rung_of
from gradveil.audit.lineup import gallery_of, hold_lineup
from gradveil.audit.lineup_plan import plan_lineups
from gradveil.audit.pieces import all_pieces, controls_of, divide_lineup, rung_shards
from gradveil.audit.plan import Cell
from gradveil.audit.results import KINDS, Run, read_run
from gradveil.audit.runner import attack
from gradveil.audit.schedule import shards
from gradveil.audit.trial import Trial
from gradveil.audit.verdict.estimate import FactsOf
from gradveil.config.build import build
from gradveil.config.load import from_tables, read_tables
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError, unknown
from gradveil.core.threads import threads, wait_for
from gradveil.experiment.folder import CONFIG, RunFolder
from gradveil.experiment.provenance import HASHES
from gradveil.experiment.record import Record
from gradveil.metrics import facts_of

SHOWN = 3  # keys, where one is not known


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A trial as the run has it, and as it came out now."""

    stored: Record
    again: Record
    same_pictures: bool | None = None  # bit by bit; None where the run has none
    facts: FactsOf = field(default=facts_of, repr=False)  # how the scores are read

    @property
    def identical(self) -> bool:
        """To the last bit."""
        kept, now = self.stored, self.again
        same = (kept.status, kept.reason, kept.scores, kept.loss) == (now.status, now.reason, now.scores, now.loss)
        return same and kept.ranks == now.ranks and self.same_pictures is not False

    @property
    def agrees(self) -> bool:
        """Identical, or so near as another device or library comes."""
        return not any(self._differences())

    @property
    def summary(self) -> str:
        """One line if it agrees, otherwise one for each thing that does not."""
        if self.identical:
            return "identical"
        if not self.agrees:
            return "\n".join(self._differences())
        changes = [self._change_of(name) for name, old in self.stored.scores.items() if old != self.again.scores[name]]
        return f"within rounding: {', '.join(changes) or 'every score is the same, the last bits are not'}"

    def _differences(self) -> Iterator[str]:
        kept, now = self.stored, self.again
        if kept.status != now.status:
            yield f"status {kept.status} -> {now.status}: {kept.reason or now.reason}"
        elif kept.reason != now.reason:
            yield f"reason {kept.reason!r} -> {now.reason!r}"
        elif kept.ranks != now.ranks:
            names = sorted({*kept.ranks, *now.ranks})
            changed = [name for name in names if kept.ranks.get(name) != now.ranks.get(name)]
            yield f"ranks of the line-up: {', '.join(changed)}"
        else:
            yield from (self._change_of(name) for name in sorted({*kept.scores, *now.scores}) if self._is_far(name))

    def _is_far(self, name: str) -> bool:
        if name not in self.stored.scores or name not in self.again.scores:
            return True
        old, new = self.stored.scores[name], self.again.scores[name]
        return not (abs(old - new) <= self.facts(name).tolerance or self._both_exact(name, old, new))

    def _change_of(self, name: str) -> str:
        old, new = (scores.get(name) for scores in (self.stored.scores, self.again.scores))
        digits = self.facts(name).digits + 2
        change = f"{name} {_number(old, digits)} -> {_number(new, digits)}"
        return f"{change} (both exact)" if self._both_exact(name, old, new) else change

    def _both_exact(self, name: str, old: float | None, new: float | None) -> bool:
        """Above `exact` a picture is a copy, and how far above is rounding."""
        exact = self.facts(name).exact
        return exact is not None and old is not None and new is not None and min(old, new) > exact


def _number(value: float | None, digits: int) -> str:
    return "absent" if value is None else f"{value:.{digits}f}"


def reproduce(
    folder: str | Path, key: str, compute: Compute | None = None, model: str = "", loss: str = ""
) -> Comparison:
    """Compute the trial `key` of a run again. `model`, `loss`: file and function, where they are the user's own."""
    run = read_run(Path(folder))
    stored = _record(run, key)
    origin = _origin(run)
    audit = _rebuild(run, {"model": model, "loss": loss})
    how = compute or as_the_run(origin)
    _check(run, origin, origin_of(audit, how))
    again_by = _hold_again if stored.control == "lineup" else _again
    trial = again_by(run, audit, how, origin, key)
    again = next(record for record in trial.records if record.key == key)
    return Comparison(stored=stored, again=again, same_pictures=_same_pictures(run, stored, trial), facts=run.facts)


def _record(run: Run, key: str) -> Record:
    records = {record.key: record for record in run.records}
    if key not in records:
        near = get_close_matches(key, records, n=SHOWN)
        raise unknown("trial", key, near or list(records)[:SHOWN])
    return records[key]


def _origin(run: Run) -> Mapping[str, Any]:
    """The run's provenance, as far as it is needed here."""
    found = RunFolder(run.folder).read_provenance()
    if "shard" not in found:
        raise ConfigError(f"{run.folder}: says too little of how it was computed, it was made by another version")
    return found


def _rebuild(run: Run, own: Mapping[str, str]) -> Audit:
    """The audit that config.toml describes; its model and loss from the files that the user names, if any."""
    path = run.folder / CONFIG
    raw = read_tables(path, model_given=bool(own["model"]), loss_given=bool(own["loss"]))
    scenario = raw.get("scenario")
    if not isinstance(scenario, Mapping) or "name" in scenario:
        raise ConfigError(f"{run.folder}: was made through the library by hand, only its own code can run it again")
    for key, spec in own.items():
        if spec and Path(spec).name != Path(str(scenario.get(key))).name:
            raise ConfigError(f"the {key} of this run is {scenario.get(key)}, give its file and name", key=key)
    named = {key: spec for key, spec in own.items() if spec}
    audit = build(from_tables({**raw, "scenario": {**scenario, **named}}, lambda key: f"{path}: {key}"))
    # the files may lie elsewhere today: weights are compared, not paths
    written = {key: scenario[key] for key in named}
    return replace(audit, settings={**audit.settings, "scenario": {**audit.settings["scenario"], **written}})


def _check(run: Run, stored: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    if changed := [name for name in HASHES if stored.get(name) != here[name]]:
        names = ", ".join(changed)
        raise ConfigError(f"{run.folder}: {names} is not the same here, give the model, data and config of the run")


def as_the_run(origin: Mapping[str, Any]) -> Compute:
    """How the run was computed."""
    own = str(origin.get("device", "cpu")).partition(": ")[0]
    settings = {name: origin[name] for name in ("precision", "backend", "chunk") if name in origin}
    return Compute(device=own, **settings)


def _hold_again(run: Run, audit: Audit, compute: Compute, origin: Mapping[str, Any], key: str) -> Trial:
    """The shard of line-ups that holds the trial."""
    cells, gallery = list(plan_lineups(audit, compute, origin["shard"])), gallery_of(audit)
    if "piece" in origin:
        cells = [one for cell in cells for one in divide_lineup(cell, origin["piece"])]
    if gallery is None or (cell := next((one for one in cells if key in one.own_keys), None)) is None:
        raise _unknown_here(key)
    with threads(1, of_torch=origin.get("threads", 1)) as submit, compute.active():
        return Trial(wait_for(submit(hold_lineup, cell, gallery)))


def _unknown_here(key: str) -> ConfigError:
    return ConfigError(
        f"{key} is in the journal, but this version does not run it, use the version of the run", key="trial"
    )


def _again(run: Run, audit: Audit, compute: Compute, origin: Mapping[str, Any], key: str) -> Trial:
    """The shard that holds the trial, run as it was: all of it, since a batch rounds as one, on as many threads."""
    stored = next(record for record in run.records if record.key == key)
    groups = (group for group in _groups(audit, compute, origin, stored) if any(key in cell.keys for cell in group))
    if (group := next(groups, None)) is None:
        raise _unknown_here(key)
    own = next(cell for cell in group if key in cell.keys)
    there = {record.client for record in run.records if record.key in set(own.keys)}  # others had dropped out
    group, own = [cell.only(there) for cell in group], own.only(there)
    with threads(1, of_torch=origin.get("threads", 1)) as submit, compute.active():
        trials = wait_for(submit(attack, group if own.repeats else [own], judge_of(audit)))
    return next(trial for trial in trials if any(record.key == key for record in trial.records))


def _groups(audit: Audit, compute: Compute, origin: Mapping[str, Any], record: Record) -> list[list[Cell]]:
    """What is run at once; of a run with limited time, the pieces and the smaller efforts."""
    rung, shard = rung_of(record.attack), origin["shard"]
    groups = list(shards(audit, compute, shard)) if rung == 1 else rung_shards(audit, rung, compute, shard)
    pieces = all_pieces(groups, origin["piece"]) if "piece" in origin else groups
    if rung == 1 or not record.control:
        return pieces
    hit = [group[0] for group in pieces if group[0].place[:3:2] == (record.scenario, record.attack)]
    return [one for cell in hit for one in controls_of(audit, cell, cell.scenario.names, record.control)]


def _same_pictures(run: Run, record: Record, trial: Trial) -> bool | None:
    stored = run.pictures(record)
    if stored is None:
        return None
    if not trial.pictures:
        return False
    now = {kind: trial.pictures[kind].detach().float().cpu() for kind in KINDS if kind in trial.pictures}
    if "fed" in now and now["fed"].shape != now["original"].shape:  # as the run reads it back
        now["fed"] = now["original"]
    return all(np.array_equal(getattr(stored, kind), now[kind][record.example].numpy()) for kind in now)
