"""Attacks in order: who does not apply is left out, pictures that leaked drop out, nothing depends on luck."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from toys import Noise, audit

from gradveil.attacks.autoattack import autoattack
from gradveil.attacks.linear import linear
from gradveil.audit.audit import Audit, run_audit
from gradveil.audit.results import Run, read_run
from gradveil.audit.schedule import shards, waves
from gradveil.audit.table import as_csv
from gradveil.audit.verdict import Verdict, judge
from gradveil.core.attack import Attack
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.defenses.gaussian import Gaussian
from gradveil.experiment import journal

DEFENSES = {"none": Defense(), "noise": Gaussian(scale=1e3)}


def in_order(attacks: dict[str, Attack], clients: int = 5, **changes) -> Audit:
    return replace(audit(attacks, DEFENSES, clients=clients, controls=True, **changes), sequence=True)


def attempts(folder: Path) -> Counter:
    return Counter((r.defense, r.attack) for r in journal.read(folder / "journal.jsonl") if not r.control)


def test_what_leaked_is_not_attacked_again(tmp_path: Path) -> None:
    run_audit(in_order({"linear": linear(), "second": Noise()}), tmp_path / "run")
    assert attempts(tmp_path / "run") == {
        ("none", "linear"): 5,
        ("none", "second"): 5,  # every attack has its own positive control
        ("noise", "linear"): 10,
        ("noise", "second"): 10,
    }
    verdict = judge(read_run(tmp_path / "run"))
    assert verdict.missing == 0
    assert {f.tally.defense: (f.verdict, f.tally.leaked) for f in verdict.findings}["none"] == ("leaks", 5)
    assert verdict.positive is not None
    assert verdict.positive.passed


def test_the_order_is_that_of_the_attacks(tmp_path: Path) -> None:
    run_audit(in_order({"first": Noise(), "linear": linear()}), tmp_path / "run")
    assert attempts(tmp_path / "run")["none", "first"] == attempts(tmp_path / "run")["none", "linear"] == 5


@pytest.mark.parametrize(("attacks", "shown"), [(("linear", "second"), "linear"), (("second",), "second")])
def test_undefended_pictures_come_first_but_those_of_the_last_of_several(attacks: tuple[str, ...], shown: str) -> None:
    known = {"linear": linear(), "second": Noise()}
    groups = list(shards(in_order({name: known[name] for name in attacks}), Compute(), 10))
    first, *_ = waves(groups, list(attacks))
    assert [(group[0].label, group[0].attack, group[0].control) for group in first] == [("none", shown, "")]


def against_noise(tmp_path: Path, scale: float, **changes) -> tuple[Run, Verdict, set[str]]:
    """A run on a noised update, its verdict, and the clients that the second attack met there."""
    noised = {"none": Defense(), "noise": Gaussian(scale=scale)}
    run_audit(replace(in_order({"linear": linear(), "second": Noise()}, **changes), defenses=noised), tmp_path / "run")
    run = read_run(tmp_path / "run")
    second = {r.client for r in run.records if (r.defense, r.attack, r.control) == ("noise", "second", "")}
    return run, judge(run), second


def test_what_was_recovered_whole_is_not_attacked_again_behind_a_defense(tmp_path: Path) -> None:
    _, verdict, second = against_noise(tmp_path, 1e-3)  # 60 dB
    assert not second
    assert verdict.missing == 0


@pytest.mark.parametrize(("scale", "examples"), [(3e-2, 1), (1e-9, 2)])
def test_a_picture_that_leaked_without_being_whole_meets_the_next_attack(
    tmp_path: Path, scale: float, examples: int
) -> None:
    """What is reported is the best of all attacks: one that sees a blur must not hide what the next one sees.

    Two pictures of one class in a batch cannot be told apart in closed form: a mixture of both is near each.
    """
    run, verdict, second = against_noise(tmp_path, scale, clients=3, examples=examples)
    first = [r for r in run.records if (r.defense, r.attack, r.attacker) == ("noise", "linear", "adaptive")]
    assert any(verdict.baselines.is_leaked(r) for r in first)
    assert not any(verdict.baselines.is_whole(r) for r in first)
    assert second == {"c0000", "c0001", "c0002"}
    assert verdict.missing == 0


def test_a_run_of_an_earlier_version_left_out_whatever_had_leaked(tmp_path: Path) -> None:
    """It does not say from how many dB on: then a trial that is not there is not missed after any leak."""
    run, verdict, _ = against_noise(tmp_path, 3e-2)
    first = [r for r in run.records if (r.defense, r.attack) == ("noise", "linear")]
    leaked = {r.client for r in first if verdict.baselines.is_leaked(r)}
    left = [r for r in run.records if not ((r.defense, r.attack) == ("noise", "second") and r.client in leaked)]
    assert len(left) < len(run.records)
    assert judge(replace(run, records=left)).missing > 0
    earlier = {name: value for name, value in run.provenance.items() if name != "whole"}
    assert judge(replace(run, records=left, provenance=earlier)).missing == 0


def test_a_trial_that_is_really_missing_is_missed(tmp_path: Path) -> None:
    run_audit(in_order({"linear": linear(), "second": Noise()}), tmp_path / "run")
    path = tmp_path / "run/journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lost = [line for line in lines if b"toy/noise/second/adaptive/c0003/0" in line]
    path.write_bytes(b"".join(line for line in lines if line not in lost))
    assert len(lost) == 1
    assert judge(read_run(tmp_path / "run")).missing == 1
    run_audit(in_order({"linear": linear(), "second": Noise()}), tmp_path / "run")
    assert judge(read_run(tmp_path / "run")).missing == 0


@pytest.mark.more
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_was_cut_anywhere_ends_the_same(tmp_path: Path, workers: int) -> None:
    whole = in_order({"linear": linear(), "second": Noise(), "third": Noise()}, clients=4)
    run_audit(whole, tmp_path / "whole")
    expected = as_csv(journal.read(tmp_path / "whole/journal.jsonl"))
    lines = (tmp_path / "whole/journal.jsonl").read_bytes().splitlines(keepends=True)
    run_audit(whole, tmp_path / "cut", Compute(workers=workers))
    for kept in range(0, len(lines), 21 if workers else 7):  # processes take their time to begin
        (tmp_path / "cut/journal.jsonl").write_bytes(b"".join(lines[:kept]))
        run_audit(whole, tmp_path / "cut", Compute(workers=workers))
        assert as_csv(journal.read(tmp_path / "cut/journal.jsonl")) == expected


def test_an_attack_with_nothing_to_work_on_is_left_out_and_named(tmp_path: Path) -> None:
    from scenes import smooth

    without = in_order({"linear": linear(), "second": Noise()})
    conv = replace(without.scenario, model=smooth().float())
    labels = without.scenario.private.labels.new_zeros(5, 1, 5)
    labels[..., 0] = 1
    private = without.scenario.private._replace(labels=labels)
    run_audit(replace(without, scenario=replace(conv, private=private)), tmp_path / "run")
    assert {attack for _, attack in attempts(tmp_path / "run")} == {"second"}
    assert "linear" in read_run(tmp_path / "run").provenance["left_out"]
    with pytest.raises(ConfigError, match="none applies"):
        run_audit(
            replace(without, attacks={"linear": linear()}, scenario=replace(conv, private=private)), tmp_path / "none"
        )


def test_autoattack_by_itself_picks_what_explains_the_update() -> None:
    from scenes import one_picture, perceptron, seen_in

    from gradveil.core.seeds import Seed

    seen = seen_in(one_picture(model=perceptron()))
    got = autoattack(steps=5).reconstruct(seen, Seed(0))
    exact = linear().reconstruct(seen, Seed(0))
    assert (got.images - exact.images).abs().max() < 1e-6
    assert got.backend == "closed form"  # everything was explained, so no other stage ran
