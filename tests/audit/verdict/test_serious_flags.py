"""A serious flag forbids "no leak found" of what it is about: each has a run of its own that would be fine without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from runs import ROLES, defended, line_up, record, run_of, undefended
from test_evidence import change, doubled, hard_run, under

from gradveil.audit.flags import FLAGS
from gradveil.audit.results import Run
from gradveil.audit.verdict import judge
from gradveil.experiment.record import Record

LESS_KNOWN = {**ROLES["easy"], "role": "variation", "regime": "deployment", "labels": "inferred"}


def flagged(flag: str) -> Run:
    """Every trial of the attacker who knows the defense."""
    return change(hard_run(), lambda r: r.attacker == "adaptive", flags=(flag,))


def explaining(**numbers: float) -> Run:
    """What the informed attacker's client and its reconstructions explain."""
    return change(hard_run(), lambda r: r.attacker == "adaptive", explained=numbers)


def weaker_informed() -> Run:
    """Half a decibel below the attacker who knows nothing, for every picture."""
    return change(hard_run(), lambda r: r.attacker == "adaptive", scores={"psnr": 10.5, "retrieval": 0.0})


def known_before() -> Run:
    """Noise in the place of an update finds half of the pictures."""
    guessed = [record(i, control="random", scores={"psnr": 11.0, "retrieval": float(i % 2)}) for i in range(20)]
    return run_of(undefended(20), guessed, defended(20))


def knowing_less() -> list[Record]:
    """Attackers who have to infer the labels, and recover everything."""
    pairs = [(i, who) for who in ("unaware", "adaptive") for i in range(20)]
    return [record(i, scenario="inferred", defense="d", attacker=who) for i, who in pairs]


def lined_up_as(flag: str) -> Run:
    """Line-ups of strange updates beside attacks that saw nothing."""
    return run_of(undefended(20), defended(20), line_up(20), line_up(20, "d", flags=(flag,)))


RUNS: dict[str, Callable[[], Run]] = {
    "line-up-off": lambda: lined_up_as("line-up-off"),
    "line-up-not-replayed": lambda: lined_up_as("line-up-not-replayed"),
    "did-not-converge": lambda: flagged("did-not-converge"),
    "no-slope": lambda: flagged("no-slope"),
    "not-replayed": lambda: flagged("not-replayed"),
    "truth-explains-less": lambda: explaining(reconstruction=0.9, truth=0.5),
    "adaptive-weaker": weaker_informed,
    "control-identified": known_before,
    "convergence-not-checked": lambda: without(hard_run(), "doubled"),
    "not-converged": lambda: run_of(undefended(20, 10), doubled(20, 20, 0.05), defended(20)),
    "undefended-holds": lambda: hard_run(without_defense=0),
    "not-monotone": lambda: run_of(
        undefended(20), defended(20), knowing_less(), roles={**ROLES, "inferred": LESS_KNOWN}
    ),
    "sealed-again": lambda: hard_run(sealed_again=[{"time": "now", "by": "the report", "problem": "it was missing"}]),
}


def without(run: Run, control: str) -> Run:
    """As a run that never planned this control."""
    cells = [cell for cell in run.plan["cells"] if cell[3] != control]
    kept = tuple(r for r in run.records if r.control != control)
    return replace(run, records=kept, provenance={**run.provenance, "plan": {**run.plan, "cells": cells}})


BESIDE_A_LEAK = {"attack-above-line-up", "leaks-and-bounded"}  # tests/audit/verdict/test_bounds.py: the word is leaks


def test_every_serious_flag_has_its_run() -> None:
    assert RUNS.keys() | BESIDE_A_LEAK == {name for name, flag in FLAGS.items() if flag.severity == "serious"}


def test_without_any_of_them_nothing_leaked() -> None:
    assert under(hard_run()).verdict == under(run_of(undefended(20), defended(20))).verdict == "no leak found"


@pytest.mark.parametrize("flag", RUNS)
def test_a_serious_flag_forbids_no_leak_found(flag: str) -> None:
    run = RUNS[flag]()
    found = under(run)
    assert found.verdict == "inconclusive", found.reasons
    assert not judge(run).missing


RAISED_BY_THE_JUDGE = [*RUNS.keys() - {"did-not-converge", "no-slope", "not-replayed", "truth-explains-less"}]


@pytest.mark.parametrize("flag", sorted(RAISED_BY_THE_JUDGE))
def test_and_it_is_raised_there(flag: str) -> None:
    assert flag in judge(RUNS[flag]()).flags
