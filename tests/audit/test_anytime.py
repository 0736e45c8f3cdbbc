"""Limited time: what is done counts and is never done again, and what is not reached is never protection.

The clock counts evaluations, so that every test cuts the same run at the same place on any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toys import audit

from gradveil.attacks.linear import linear
from gradveil.audit import audit as module
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.ladder import RUNGS, base_of, name_rung, rung_of, rungs_of
from gradveil.audit.results import read_run
from gradveil.audit.verdict import Verdict, judge, to_json
from gradveil.audit.verdict.leak import Baselines
from gradveil.core.attack import Attack, Reconstruction
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.observation import Observation
from gradveil.core.seeds import Seed
from gradveil.core.time_limit import TimeLimit
from gradveil.defenses.gaussian import Gaussian
from gradveil.defenses.prune import Prune
from gradveil.experiment import journal
from gradveil.experiment.record import Record

STEPS = 512


@dataclass
class Clock:
    """Every evaluation of a client takes a second, everything else nothing."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, kw_only=True)
class Search(Attack):
    """Sees the picture with `enough` steps, and noise before. It counts its evaluations on the clock."""

    clock: Clock = field(repr=False, compare=False)
    steps: int = STEPS
    enough: int = 1 << 30
    restarts: int = 1

    def scaled(self, factor: float) -> Search:
        return replace(self, steps=max(1, round(self.steps * factor)))

    @property
    def uses(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"surrogate"})

    @property
    def evaluations(self) -> tuple[int, int]:
        return self.steps, self.steps

    def reconstruct(self, seen: Observation, seed: Seed, compute: Compute = Compute()) -> Reconstruction:
        self.clock.now += self.steps * len(seen.names)
        found = linear().reconstruct(seen, seed, compute)
        if self.steps >= self.enough:
            return found
        noise = torch.stack([torch.rand(found.images.shape[1:], generator=seed.at(name).rng()) for name in seen.names])
        return replace(found, images=noise, loss=1.0 / self.steps + order_of(seen.names))


def order_of(names: tuple[str, ...]) -> Tensor:
    """The last client is the most promising one."""
    return torch.tensor([-float(name[1:]) for name in names]) * 1e-3


DEFENSES = {"none": Defense(), "noise": Gaussian(scale=1e3)}


def limited(seconds: float, clock: Clock, defenses: dict[str, Defense] | None = None, **changes) -> Audit:
    attacks: dict[str, Attack] = {"search": Search(clock=clock, **changes)}
    made = audit(attacks, defenses or DEFENSES, clients=5, controls=True)
    return replace(made, limit=TimeLimit(seconds, clock=clock) if seconds else None)


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a second, and clients are attacked one at a time."""
    monkeypatch.setattr(module, "measure_step", lambda *_: 1.0)


def records(folder: Path) -> list[Record]:
    return journal.read(folder / "journal.jsonl")


def keys(folder: Path) -> list[str]:
    return [record.key for record in records(folder)]


def verdict_of(folder: Path) -> Verdict:
    return judge(read_run(folder))


def words(folder: Path) -> dict[str, str]:
    return {finding.tally.defense: finding.verdict for finding in verdict_of(folder).findings}


def test_a_longer_time_extends_a_shorter_one(tmp_path: Path) -> None:
    folder, before = tmp_path / "run", []
    for seconds in (60, 120, 600, 6000):
        run_audit(limited(seconds, Clock()), folder)
        now = keys(folder)
        assert now[: len(before)] == before
        assert len(now) > len(before)
        assert len(set(now)) == len(now), "no trial twice"
        before = now


def test_it_ends_in_time(tmp_path: Path) -> None:
    for seconds in (30, 100, 1000):
        clock = Clock()
        run_audit(limited(seconds, clock), tmp_path / str(seconds))
        assert clock.now <= seconds


def test_without_a_limit_the_rest_is_done_and_the_verdict_is_that_of_the_default(tmp_path: Path) -> None:
    run_audit(limited(300, Clock()), tmp_path / "run")
    assert verdict_of(tmp_path / "run").missing
    run_audit(limited(0, Clock()), tmp_path / "run")
    run_audit(limited(0, Clock()), tmp_path / "default")
    assert words(tmp_path / "run") == words(tmp_path / "default")
    assert not verdict_of(tmp_path / "run").missing
    whole = {key for key in keys(tmp_path / "run") if "@1/" not in key}
    assert whole == set(keys(tmp_path / "default"))


def test_enough_time_ends_with_the_default_audit(tmp_path: Path) -> None:
    run_audit(limited(1e6, Clock()), tmp_path / "run")
    run_audit(limited(0, Clock()), tmp_path / "default")
    assert {key for key in keys(tmp_path / "run") if "@1/" not in key} == set(keys(tmp_path / "default"))
    assert words(tmp_path / "run") == words(tmp_path / "default")


def test_an_audit_without_a_limit_knows_no_rungs(tmp_path: Path) -> None:
    run_audit(limited(0, Clock()), tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert not [key for key in keys(tmp_path / "run") if "@1/" in key]
    assert not {"piece", "seconds", "spent"} & run.provenance.keys()
    assert not any("reached" in finding for finding in to_json(run, judge(run))["findings"])


@pytest.mark.parametrize("seconds", [20, 60, 300, 1000, 3000, 8000])
def test_what_is_not_reached_is_no_protection(seconds: float, tmp_path: Path) -> None:
    """Nothing leaks here at any time, and as long as something is missing nothing is ruled out."""
    run_audit(limited(seconds, Clock()), tmp_path / "run")
    found = verdict_of(tmp_path / "run")
    assert found.missing
    assert set(words(tmp_path / "run").values()) <= {"inconclusive", "not evaluated"}
    reasons = [reason for finding in found.findings for reason in finding.reasons]
    assert any(reason.startswith("After ") for reason in reasons)


def test_too_short_for_anything_is_not_evaluated(tmp_path: Path) -> None:
    clock = Clock()
    made = limited(1, clock)
    clock.now = 10.0
    run_audit(made, tmp_path / "run")
    assert not records(tmp_path / "run")
    assert set(words(tmp_path / "run")) == {"none", "noise"}, "nobody is forgotten"
    assert set(words(tmp_path / "run").values()) <= {"inconclusive", "not evaluated"}
    assert verdict_of(tmp_path / "run").word in ("inconclusive", "not evaluated")


def test_a_step_that_was_taken_for_too_slow_is_tried_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time that nobody uses shows nothing: what was only guessed to take too long is begun."""
    monkeypatch.setattr(module, "measure_step", lambda *_: 1e6)
    run_audit(limited(60, Clock()), tmp_path / "run")
    assert {r.defense for r in records(tmp_path / "run")} == set(DEFENSES)


def test_every_defense_has_its_turn_before_any_has_a_second_one(tmp_path: Path) -> None:
    defenses = {"none": Defense(), "noise": Gaussian(scale=1e3), "prune": Prune(ratio=0.9)}
    run_audit(limited(60, Clock(), defenses), tmp_path / "run")
    counts = Counter(r.defense for r in records(tmp_path / "run") if not r.control and r.attacker == "unaware")
    assert set(counts) == set(defenses)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_most_promising_clients_come_first(tmp_path: Path) -> None:
    run_audit(limited(2000, Clock()), tmp_path / "run")
    second = [r.client for r in records(tmp_path / "run") if rung_of(r.attack) == 64 and r.defense == "none"]
    assert second == sorted(second, reverse=True)


def leaking(seconds: float, enough: int = STEPS // 16) -> Audit:
    return limited(seconds, Clock(), {"none": Defense(), "little": Gaussian(scale=1e-4)}, enough=enough)


def test_a_leak_by_a_smaller_effort_is_a_leak_once_its_controls_are_there(tmp_path: Path) -> None:
    run_audit(leaking(2500), tmp_path / "run")
    assert words(tmp_path / "run") == {"none": "leaks", "little": "leaks"}
    found = records(tmp_path / "run")
    assert {r.control for r in found if rung_of(r.attack) == 16} == {"", "prior"}, "the toy has no prior of its own"
    unvetted = Baselines.of(r for r in found if not r.control)
    hit = {(r.attack, r.client) for r in found if not r.control and unvetted.is_unvetted_hit(r)}
    assert {(r.attack, r.client) for r in found if r.control and rung_of(r.attack) > 1} == hit


def test_without_its_control_a_smaller_effort_shows_nothing(tmp_path: Path) -> None:
    run_audit(leaking(2500), tmp_path / "run")
    run = read_run(tmp_path / "run")
    alone = replace(run, records=tuple(r for r in run.records if not r.control))
    assert {finding.verdict for finding in judge(alone).findings} == {"inconclusive"}


ORDER = {"not evaluated": 0, "inconclusive": 0, "no leak found": 1, "bounded": 1, "leaks": 2}


@pytest.mark.parametrize("make", [leaking, lambda seconds: limited(seconds, Clock())])
def test_a_verdict_only_gains_evidence(make: Callable[[float], Audit], tmp_path: Path) -> None:
    """Over every prefix of a journal: a leak stays one, and nothing is ruled out before the end."""
    run_audit(make(1e6), tmp_path / "run")
    run = read_run(tmp_path / "run")
    before: dict[str, str] = {}
    for count in range(len(run.records) + 1):
        found = judge(replace(run, records=run.records[:count]))
        now = {finding.tally.defense: finding.verdict for finding in found.findings}
        assert all(ORDER[now[name]] >= ORDER[word] for name, word in before.items()), count
        if found.missing:
            assert not {"no leak found", "bounded"} & set(now.values())
        before = now


def test_rungs_are_fixed_and_those_that_are_no_less_are_left_out() -> None:
    clock = Clock()
    found = [rungs_of({"a": Search(clock=clock, steps=512), "b": Search(clock=clock, steps=10)}, one) for one in RUNGS]
    assert [list(one) for one in found] == [
        ["a@1/1024"],
        ["a@1/256"],
        ["a@1/64"],
        ["a@1/16", "b@1/16"],
        ["a@1/4", "b@1/4"],
    ]
    assert not rungs_of({"linear": linear()}, 4)
    assert [base_of(name_rung("a", rung)) for rung in (4, 16)] == ["a", "a"]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_is_above_nothing(seconds: float) -> None:
    with pytest.raises(ConfigError, match="must be above 0"):
        TimeLimit(seconds)
