"""Pieces of shards: the same trials, fewer clients at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import Noise, audit

from gradveil.attacks.invertgrad import invertgrad
from gradveil.attacks.linear import linear
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.lineup import gallery_of, hold_lineup
from gradveil.audit.lineup_plan import plan_lineups
from gradveil.audit.pieces import clients_at_once, divide, divide_lineup, in_turn
from gradveil.audit.results import Run, read_run
from gradveil.audit.schedule import shards
from gradveil.audit.speed import Speed, count_looks, extrapolate
from gradveil.audit.verdict.completeness import count_missing
from gradveil.audit.verdict.leak import Baselines
from gradveil.audit.verdict.tally import tally_run
from gradveil.audit.verdict.unfinished import find_unfinished
from gradveil.core.compute import Compute
from gradveil.core.time_limit import TimeLimit


def made(clients: int = 5, **changes) -> Audit:
    return audit({"linear": linear(), "noise": Noise()}, clients=clients, controls=True, lineup="auto", **changes)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 99])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_pieces_hold_every_trial_once(size: int, clients: int) -> None:
    for group in shards(made(clients), Compute(), 32):
        pieces = list(divide(group, size))
        for place, cell in enumerate(group):
            own = [key for piece in pieces for key in piece[place].keys]
            assert sorted(own) == sorted(cell.keys)
            assert len(set(own)) == len(own)
            assert all(piece[place].is_control == cell.is_control for piece in pieces)


def test_line_ups_picture_by_picture_rank_as_all_at_once() -> None:
    whole, gallery = made(3, examples=2), gallery_of(made())
    assert gallery is not None
    for cell in plan_lineups(whole, Compute(), 32):
        together = {record.key: record.ranks for record in hold_lineup(cell, gallery)}
        pieces = list(divide_lineup(cell, 1))
        apart = {record.key: record.ranks for piece in pieces for record in hold_lineup(piece, gallery)}
        assert [key for piece in pieces for key in piece.own_keys] == cell.own_keys
        assert apart.keys() == together.keys()
        for key, ranks in together.items():
            assert {n: r for n, r in apart[key].items() if "another" not in n} == {
                n: r for n, r in ranks.items() if "another" not in n
            }
            assert "rank-of-another" in apart[key], "another client's update stands beside each as a control"


def test_quick_line_ups_stay_whole() -> None:
    cells = list(plan_lineups(made(), Compute(), 32))
    assert [one for cell in cells for one in divide_lineup(cell, 2)] == cells


def test_few_clients_at_once_where_a_step_is_slow() -> None:
    searched = audit({"search": invertgrad(steps=100, restarts=1)})
    assert [clients_at_once(searched, step, 32) for step in (0.0, 1e-6, 0.02, 0.05, 9.0)] == [32, 32, 10, 4, 1]


def test_looks_are_counted_by_masks_as_by_labels() -> None:
    """Masks are [client, picture, class, height, width]; two clients have the same."""
    (cell, *_) = plan_lineups(made(3), Compute(), 3)
    masks = torch.zeros(3, 1, 2, 4, 4)
    masks[2] = 1
    held = cell.scenario.private
    alike = replace(cell, scenario=replace(cell.scenario, private=held._replace(labels=masks)))
    plain = torch.zeros(3, 1, 2)
    plain[2] = 1
    labeled = replace(cell, scenario=replace(cell.scenario, private=held._replace(labels=plain)))
    assert count_looks(alike) == count_looks(labeled)


def test_all_in_turn() -> None:
    assert in_turn([[1, 2, 3], [], [4], [5, 6]]) == [1, 4, 5, 2, 6, 3]


def test_what_others_of_its_kind_took_says_how_long_it_takes() -> None:
    speed, (first, *_) = Speed(), list(shards(made(4), Compute(), 4))
    two, other = list(divide(first, 2))
    assert speed.estimate(two) == 0.0
    assert speed.expect([two]) is None
    speed.learn(two, [], 6.0)
    assert speed.estimate(other) == 6.0
    assert speed.expect([two, other]) == 12.0
    speed.learn_least(two, 10.0)
    assert speed.estimate(other) == 10.0
    assert extrapolate({10: 2.0, 20: 1.0}, 40, 0.0) == 1.0, "more work never takes less time"


def test_what_nobody_can_name_does_not_wait_for_searches(tmp_path: Path) -> None:
    """A line-up or certificate needs all but the searches; without a limit it needs everything, as before."""
    run_audit(replace(made(), limit=TimeLimit(1e4)), tmp_path / "run")
    run = read_run(tmp_path / "run")
    run = replace(run, provenance={**run.provenance, "searches": ["noise"]})
    assert waits(run) == (0, 0)
    searched = replace(run, records=tuple(r for r in run.records if r.attack != "noise"))
    total, bounding = waits(searched)
    assert (total > 0, bounding) == (True, 0)
    closed = replace(run, records=tuple(r for r in run.records if r.attack != "linear"))
    assert waits(closed)[1] == waits(closed)[0] > 0
    plain = {key: value for key, value in run.provenance.items() if key != "piece"}
    assert waits(replace(searched, provenance=plain)) == (total, total)


def waits(run: Run) -> tuple[int, int]:
    """Trials that are missing, and those that a bound waits for."""
    baselines = Baselines.of(run.records)
    left = find_unfinished(run, tally_run(run, baselines)[0], baselines, count_missing(run, baselines))
    return left.trials, left.bounding
