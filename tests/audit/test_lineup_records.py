"""What an audit journals of its line-ups: for every scenario, defense and kind of client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toys import CLASSES, Noise, Plants, audit, pictures

from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.lineup import GRANTED, OWN, PLANTED
from gradveil.audit.lineup_plan import TRIALS, plan_lineups
from gradveil.audit.results import read_run
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining, ThreatModel
from gradveil.defenses import DEFENSES
from gradveil.experiment.record import Record

NONE = {"none": Defense()}


def large(defenses: Mapping[str, Defense] = NONE, gallery: int = 40, **changes) -> Audit:
    """With a gallery of which every class has several."""
    labels = torch.eye(CLASSES)[torch.arange(gallery) % CLASSES]
    found = audit({"noise": Noise()}, defenses, **{"lineup": "auto", **changes})
    return replace(found, gallery=pictures(gallery, 1), gallery_labels=labels)


def held(asked: Audit, folder: Path, compute: Compute = Compute()) -> list[Record]:
    run_audit(asked, folder, compute)
    return [record for record in read_run(folder).records if record.control == "lineup"]


def named(records: list[Record]) -> float:
    ranks = [rank for record in records for rank in record.ranks["rank"]]
    return sum(rank == 1 for rank in ranks) / len(ranks)


def test_one_record_for_each_picture_with_its_trials(tmp_path: Path) -> None:
    records = held(large(), tmp_path / "run")
    assert [r.key for r in records] == [f"toy/none/line-up/lineup/c000{client}/0" for client in range(3)]
    for one in records:
        assert (one.status, one.attack, one.attacker, one.control) == ("ok", "line-up", "adaptive", "lineup")
        assert one.ranks["candidates"] == [41]
        assert one.ranks["candidates-in-class"] == [11]
        assert len(one.ranks["rank"]) == 1 + 10, "every picture of its class stands in for it once"
        for name in ("rank-jpeg", "rank-resized", "rank-brighter", "rank-in-class"):
            assert len(one.ranks[name]) == len(one.ranks["rank"])
        assert not one.scores
        assert not one.flags
        assert not one.notes
    assert named(records) == 1
    provenance = read_run(tmp_path / "run").provenance
    assert provenance["lineup"] == {"toy": {"none": {"candidates": 41, "standins": 26, "copies": 0}}}
    assert ["toy", "none", "line-up", "lineup", 3] in provenance["plan"]["cells"]


def test_what_leaves_beside_the_update_is_said(tmp_path: Path) -> None:
    """Statistics that are sent along, encodings that are published."""
    asked = large({"mix": DEFENSES["mixup"](k=2), "none": Defense()}, clients=2, examples=2)
    shared = replace(asked.scenario, training=LocalTraining(batchnorm="batch-shared"))
    for scenario, marked in (
        (shared, {"mix", "none"}),
        (replace(asked.scenario, threat=ThreatModel(sees_encodings=True)), {"mix"}),
        (asked.scenario, set()),
    ):
        records = held(replace(asked, scenario=scenario), tmp_path / f"run-{len(marked)}")
        assert {r.defense for r in records if "line-up-beside" in r.flags} == marked


@pytest.mark.parametrize(
    ("defense", "least", "most"),
    [
        (DEFENSES["gaussian"](scale=1e-3), 1.0, 1.0),
        (DEFENSES["prune"](ratio=0.9), 1.0, 1.0),
        (DEFENSES["dpsgd"](clip=1.0, noise=100.0), 0.0, 0.3),
    ],
    ids=["gaussian", "prune", "dpsgd"],
)
def test_what_a_defense_leaves(defense: Defense, least: float, most: float, tmp_path: Path) -> None:
    """`none` is not audited, so its line-up is there as a control."""
    records = held(large({"some": defense}, controls=True), tmp_path / "run")
    assert {r.defense for r in records} == {"none", "some"}
    assert all(r.status == "ok" and not r.flags for r in records), [(r.flags, r.reason) for r in records]
    assert named([r for r in records if r.defense == "none"]) == 1
    assert least <= named([r for r in records if r.defense == "some"]) <= most


@pytest.mark.parametrize(
    "changes",
    [
        {"examples": 4},
        {"training": LocalTraining(steps=3, rate=0.1)},
        {"training": LocalTraining(batchnorm="batch"), "examples": 2},
        {"threat": ThreatModel(rounds=2)},
    ],
    ids=["a batch", "FedAvg", "batch statistics", "two rounds"],
)
def test_every_kind_of_client_is_played_as_it_was(changes: dict, tmp_path: Path) -> None:
    defenses = {"none": Defense(), "gaussian": DEFENSES["gaussian"](scale=1e-4)}
    records = held(large(defenses, **changes), tmp_path / "run")
    examples = changes.get("examples", 1)
    assert len(records) == 2 * 3 * examples
    assert all(r.status == "ok" and not r.flags for r in records), [(r.flags, r.reason) for r in records]
    assert named(records) == 1


def test_sums_over_clients(tmp_path: Path) -> None:
    plain = large(examples=2)
    records = held(replace(plain, scenario=replace(plain.scenario, aggregate=2)), tmp_path / "run")
    assert len(records) == 6
    assert all(r.status == "ok" and not r.flags for r in records)
    assert named(records) == 1


def test_candidates_have_their_own_labels_where_the_attacker_has_to_infer_them(tmp_path: Path) -> None:
    records = held(large(threat=ThreatModel(knows_labels=False)), tmp_path / "run")
    assert all(r.flags == () and r.notes == (OWN,) for r in records)
    assert named(records) == 1


def test_labels_that_nobody_knows_are_granted(tmp_path: Path) -> None:
    unknown = replace(large(threat=ThreatModel(knows_labels=False)), gallery_labels=None)
    records = held(unknown, tmp_path / "run")
    assert all(r.flags == ("line-up-bound",) and r.notes == (GRANTED,) for r in records)
    assert all(len(r.ranks["rank"]) == 1 for r in records), "nobody of the same class is known to stand in"


def test_of_a_planting_server_it_is_that_of_the_agreed_model(tmp_path: Path) -> None:
    honest, planted = large(), large(threat=ThreatModel(may_plant=True))
    planted = replace(planted, attacks={"plants": Plants()})
    first, second = held(honest, tmp_path / "honest"), held(planted, tmp_path / "planted")
    assert all(r.notes == (PLANTED,) for r in second)
    assert [r.ranks for r in first] == [r.ranks for r in second]


def test_copies_of_a_victim_in_the_gallery_are_left_out_and_named(tmp_path: Path) -> None:
    plain = large()
    gallery = plain.gallery
    assert gallery is not None
    gallery[0], gallery[5] = plain.scenario.private.images[1, 0], gallery[7]
    records = held(plain, tmp_path / "run")
    assert all(r.ranks["candidates"] == [39] for r in records)
    assert all(r.notes == ("left out of the gallery, since they are there already: 2 pictures",) for r in records)


def test_what_states_no_law_is_said_and_nothing_else_fails(tmp_path: Path) -> None:
    class Odd(Defense):
        def law(self, round: object) -> None:
            return None

    asked = large({"none": Defense(), "odd": Odd()})
    run_audit(asked, tmp_path / "run")
    records = read_run(tmp_path / "run").records
    failed = [r for r in records if r.status == "failed"]
    assert {(r.defense, r.control) for r in failed} == {("odd", "lineup")}
    assert {r.reason for r in failed} == {"no likelihood is known of what this defense draws"}
    assert len(failed) == 3


@pytest.mark.parametrize(("clients", "standins"), [(TRIALS, 0), (TRIALS // 2, 1), (7, 11)])
def test_stand_ins_make_trials_enough(clients: int, standins: int) -> None:
    cells = list(plan_lineups(large(gallery=4 * 12, clients=clients), Compute(), 16))
    assert {cell.standins for cell in cells} == {standins}
    assert sum(len(cell.scenario.names) for cell in cells) == clients
    assert clients * (1 + standins) >= TRIALS


def test_off_holds_none(tmp_path: Path) -> None:
    assert not held(large(lineup=0), tmp_path / "run")
    provenance = read_run(tmp_path / "run").provenance
    assert provenance["lineup"] == {}
    assert all(cell[3] != "lineup" for cell in provenance["plan"]["cells"])


def test_a_smaller_one_has_the_first_pictures(tmp_path: Path) -> None:
    records = held(large(lineup=13), tmp_path / "run")
    assert all(r.ranks["candidates"] == [13] for r in records)
    assert all(len(r.ranks["rank"]) == 4 for r in records)


def test_without_a_gallery_there_is_none(tmp_path: Path) -> None:
    assert not held(replace(large(), gallery=None, gallery_labels=None), tmp_path / "run")
