"""Faults put into runs that leak: none may read as "no leak found". `make faults` plays all of them."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from factory import campaign
from factory.campaign import Job, describe, plan, run_all
from factory.play import BASES, CATALOGUE, Result, play
from factory.table import find_faults, find_healthy, passes, summarize


def test_the_factory_is_as_large_as_its_gate_asks(tmp_path: Path) -> None:
    jobs = plan(tmp_path)
    healthy = [job for job in jobs if job.kind.startswith("base:")]
    assert len(CATALOGUE) >= 40
    assert len(jobs) - len(healthy) >= 2000
    assert len(healthy) >= 200
    assert {base.truth for base in BASES.values()} == {"leaks", "no leak found", "bounded"}


def test_every_fault_has_a_base_and_says_what_is_wrong() -> None:
    for fault in CATALOGUE.values():
        assert fault.text[0].islower()
        assert {fault.draw_base(seed).truth for seed in range(5)} == {"leaks"}


def test_the_same_seed_draws_the_same_base() -> None:
    for base in BASES.values():
        assert base.draw(3) == base.draw(3)
        assert base.draw(3) != base.draw(4)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Healthy runs, each made once."""
    return tmp_path_factory.mktemp("healthy")


FAST = [base.name for base in BASES.values() if not {"search", "planted"} & base.traits and base.truth == "leaks"]
STORED = [name for name, fault in CATALOGUE.items() if fault.when == "records"]
PLAYED = [name for name, fault in CATALOGUE.items() if fault.when != "records" and fault.bases(FAST)]
SEARCHED = [name for name, fault in CATALOGUE.items() if name not in (*STORED, *PLAYED)]


@pytest.mark.parametrize("kind", STORED)
def test_no_fault_of_records_reads_as_protection(kind: str, shared: Path) -> None:
    among = FAST if CATALOGUE[kind].bases(FAST) else ("search-noise",)
    results = [play(kind, seed, 0, shared, among) for seed in range(5)]
    assert [describe(result) for result in results if result.is_false] == []


@pytest.mark.parametrize("kind", PLAYED)
def test_no_fault_of_a_run_reads_as_protection(kind: str, shared: Path) -> None:
    result = play(kind, 0, 1, shared, FAST)
    assert not result.is_false, describe(result)


@pytest.mark.more
@pytest.mark.parametrize("kind", SEARCHED)
def test_no_fault_of_a_search_reads_as_protection(kind: str, shared: Path) -> None:
    result = play(kind, 0, 0, shared)
    assert not result.is_false, describe(result)


@pytest.mark.parametrize("name", FAST)
def test_healthy_runs_get_their_true_word(name: str, shared: Path) -> None:
    result = play(f"base:{name}", 0, 0, shared)
    assert not result.is_false, describe(result)


def test_faults_do_something(shared: Path) -> None:
    """A catalogue of faults that change nothing would pass as well."""
    words = {play(kind, 0, 0, shared, FAST).result for kind in ("leaking-failed", "updates-zero", "gallery-empty")}
    assert "leaks" not in words


def test_a_campaign_goes_on_and_takes_no_result_of_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[Result]:
        played.clear()
        return run_all(1, 0, 0.05, ["journal-torn"], io.StringIO(), tmp_path / "state.jsonl")

    def note(job: Job) -> Result:
        played.append(job)
        return Result(kind=job.kind, seed=job.seed, base="b", result="leaks")

    played: list[Job] = []
    monkeypatch.setattr(campaign, "run_job", note)
    first = run()
    assert len(first) == len(played) == 2
    assert run() == first
    assert played == []
    monkeypatch.setattr(campaign, "hash_code", lambda: "other")
    assert len(run()) == len(played) == 2


@pytest.mark.slow
def test_no_fault_reads_as_protection(capsys: pytest.CaptureFixture) -> None:
    results = run_all(2, 0, 1.0, (), sys.stderr)
    assert len(find_faults(results)) >= 2000
    assert len(find_healthy(results)) >= 200
    assert passes(results), summarize(results)
