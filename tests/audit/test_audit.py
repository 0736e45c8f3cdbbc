from __future__ import annotations

import json
import math
import stat
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toys import Noise, Plants, Raises, audit, pictures

from gradveil.audit.audit import run_audit
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import ThreatModel
from gradveil.core.types import Batch
from gradveil.defenses.gaussian import Gaussian
from gradveil.experiment import journal
from gradveil.experiment.record import Record
from gradveil.metrics.psnr import peak_signal_to_noise


def records(folder: Path) -> list[Record]:
    return journal.read(folder / "journal.jsonl")


def timeless(found: list[Record]) -> set:
    return {(r.key, r.status, tuple(r.scores.items()), r.seed, r.flags, r.reason) for r in found}


def test_every_defense_meets_every_attack_and_both_attackers(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise(), "b": Noise()}), tmp_path / "run")
    cells = {(r.defense, r.attack, r.attacker) for r in records(tmp_path / "run")}
    assert cells == {
        (defense, attack, attacker)
        for attack in "ab"
        for defense, attacker in (("none", "unaware"), ("gaussian", "unaware"), ("gaussian", "adaptive"))
    }
    assert len(records(tmp_path / "run")) == 6 * 3
    assert len({r.key for r in records(tmp_path / "run")}) == 6 * 3


def test_scores_are_those_of_the_stored_pictures(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}, examples=2), tmp_path / "run")
    for record in records(tmp_path / "run"):
        stored = load_file(tmp_path / "run/images" / record.images)
        original, got = stored["original"][record.example], stored["reconstructed"][record.example]
        assert record.scores["psnr"] == pytest.approx(peak_signal_to_noise(got, original).item(), abs=1e-9)
        assert set(record.scores) == {"psnr", "retrieval", "psnr_fed", "retrieval_fed"}


def test_both_attackers_see_the_same_updates_and_only_one_the_defense(tmp_path: Path) -> None:
    noise = Noise()
    run_audit(audit({"a": noise}, {"gaussian": Gaussian(scale=0.1)}), tmp_path / "run")
    unaware, adaptive = noise.seen
    assert unaware.defense is None
    assert adaptive.defense == Gaussian(scale=0.1)
    for name in unaware.update:
        assert torch.equal(unaware.update[name], adaptive.update[name])
    other = Noise()
    run_audit(audit({"a": other}, {"gaussian": Gaussian(scale=0.1)}, seed=1), tmp_path / "other")
    assert not torch.equal(other.seen[0].update["1.weight"], unaware.update["1.weight"])


def test_a_client_does_not_depend_on_the_others(tmp_path: Path) -> None:
    whole = audit({"a": Noise()})
    scenario = whole.scenario
    alone = replace(scenario, private=Batch(*(x[2:] for x in scenario.private)), names=scenario.names[2:])
    run_audit(whole, tmp_path / "all")
    run_audit(replace(whole, scenario=alone), tmp_path / "alone")
    of_all = [r for r in records(tmp_path / "all") if r.client == "c0002"]
    assert timeless(of_all) == timeless(records(tmp_path / "alone"))


@pytest.mark.parametrize(
    "error",
    [RuntimeError("boom\nsecond line"), torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), ValueError("x")],
)
def test_an_attack_that_raises_fails_its_own_trials_and_the_run_goes_on(tmp_path: Path, error: Exception) -> None:
    run_audit(audit({"bad": Raises(error=error), "good": Noise()}, {"none": Defense()}), tmp_path / "run")
    bad = [r for r in records(tmp_path / "run") if r.attack == "bad"]
    good = [r for r in records(tmp_path / "run") if r.attack == "good"]
    assert [r.status for r in bad] == ["failed"] * 3
    assert all(r.reason.startswith(type(error).__name__) and "\n" not in r.reason for r in bad)
    assert all(r.scores == {} and r.images == "" and r.loss is None for r in bad)
    assert [r.status for r in good] == ["ok"] * 3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_a_failed_trial(tmp_path: Path, bad: float) -> None:
    attack = Noise(loss=lambda name: bad if name == "c0001" else 0.5)
    run_audit(audit({"a": attack}, {"none": Defense()}), tmp_path / "run")
    by_client = {r.client: r for r in records(tmp_path / "run")}
    assert by_client["c0001"].status == "failed"
    assert by_client["c0001"].scores == {}
    assert "non-finite" in by_client["c0001"].flags
    assert by_client["c0000"].status == by_client["c0002"].status == "ok"
    assert len(list((tmp_path / "run/images").iterdir())) == 2


def test_a_picture_that_is_no_number_is_a_failed_trial(tmp_path: Path) -> None:
    attack = Noise(change=lambda name, picture: picture * math.nan if name == "c0002" else picture)
    run_audit(audit({"a": attack}, {"none": Defense()}, examples=2), tmp_path / "run")
    failed = [r for r in records(tmp_path / "run") if r.status == "failed"]
    assert {r.client for r in failed} == {"c0002"}
    assert len(failed) == 2
    assert all(r.scores == {} and "not finite" in r.reason for r in failed)


class Stop(BaseException):
    """What a kill looks like from inside."""


def stop(name: str, picture: torch.Tensor) -> torch.Tensor:
    raise Stop


def test_a_run_that_was_cut_is_finished_without_loss_and_without_repetition(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise(), "b": Noise()}), tmp_path / "whole")
    with pytest.raises(Stop):
        run_audit(audit({"a": Noise(), "b": Noise(change=stop)}), tmp_path / "cut")
    path = tmp_path / "cut/journal.jsonl"
    before = records(tmp_path / "cut")
    assert len(before) == 3
    path.write_bytes(path.read_bytes()[:-30])  # and its last record is torn
    first = Noise()
    run_audit(audit({"a": first, "b": Noise()}), tmp_path / "cut")
    after = records(tmp_path / "cut")
    assert timeless(after) == timeless(records(tmp_path / "whole"))
    assert len(after) == len({r.key for r in after})
    assert after[:2] == before[:2]
    # the shard as a whole, so that the trial that was torn comes out to the same last bit
    assert [seen.names for seen in first.seen] == [("c0000", "c0001", "c0002")] * 3


def test_a_client_of_which_one_picture_is_missing_is_attacked_again_and_only_that_picture_added(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}, {"none": Defense()}, examples=2), tmp_path / "run")
    path = tmp_path / "run/journal.jsonl"
    whole = records(tmp_path / "run")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    run_audit(audit({"a": Noise()}, {"none": Defense()}, examples=2), tmp_path / "run")
    assert timeless(records(tmp_path / "run")) == timeless(whole)
    assert len(records(tmp_path / "run")) == len(whole)


def test_a_finished_run_is_not_touched_again(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}), tmp_path / "run")
    before = (tmp_path / "run/journal.jsonl").read_bytes()
    again = Noise()
    run_audit(audit({"a": again}), tmp_path / "run")
    assert again.seen == []
    assert (tmp_path / "run/journal.jsonl").read_bytes() == before
    provenance = json.loads((tmp_path / "run/provenance.json").read_text())
    assert len(provenance["resumed"]) == 1
    assert provenance["finished"] >= provenance["started"]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_another_config_data_or_model_is_refused_by_name(tmp_path: Path) -> None:
    first = audit({"a": Noise()})
    run_audit(first, tmp_path / "run")
    before = tree(tmp_path)
    with pytest.raises(ConfigError, match=r"seed is 0 there, 1 here.*choose another `folder`"):
        run_audit(audit({"a": Noise()}, seed=1), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"attack\.b is absent there"):
        run_audit(audit({"a": Noise(), "b": Noise()}), tmp_path / "run")
    with pytest.raises(ConfigError, match="data_sha256 is not the same"):
        run_audit(replace(first, gallery=pictures(10, 2)), tmp_path / "run")
    with torch.no_grad():
        next(first.scenario.model.parameters()).flatten()[0] += 1e-6
    with pytest.raises(ConfigError, match="model_sha256 is not the same"):
        run_audit(first, tmp_path / "run")
    assert tree(tmp_path) == before


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    before = tree(tmp_path)
    for name, reason in (("run", "not the folder of a run"), ("file", "not a folder"), ("link", "not a folder")):
        with pytest.raises(ConfigError, match=reason):
            run_audit(audit({"a": Noise()}), tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be made"):
        run_audit(audit({"a": Noise()}), tmp_path / "file/run")
    assert tree(tmp_path) == before


def test_what_cannot_work_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`attacker = malicious`"):
        run_audit(audit({"p": Plants()}), tmp_path / "run")
    with pytest.raises(ConfigError, match="attack: none is given"):
        run_audit(audit({}), tmp_path / "run")
    bad = audit({"a": Noise()})
    bad.scenario.private.images[0, 0, 0, 0, 0] = math.nan
    with pytest.raises(ConfigError, match="not finite"):
        run_audit(bad, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run_audit(audit({"p": Plants()}, threat=ThreatModel(may_plant=True)), tmp_path / "run")


def test_all_that_a_run_writes_is_private(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}), tmp_path / "deep/run")
    for path in (tmp_path / "deep").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700
    assert {p.name for p in (tmp_path / "deep/run").iterdir()} == {
        "config.toml", "provenance.json", "journal.jsonl", "images", "seal.json.part",
    }  # fmt: skip


def test_flags_are_raised_where_they_belong_and_nowhere_else(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}, {"none": Defense()}), tmp_path / "plain")
    flags = {r.client: set(r.flags) for r in records(tmp_path / "plain")}
    assert flags["c0001"] == {"not-better-than-blank", "did-not-converge", "fallback-backend"}
    assert flags["c0000"] == {"not-better-than-blank", "fallback-backend"}
    threat = ThreatModel(knows_labels=False)
    compute = Compute(precision="tf32")
    run_audit(
        audit({"a": Noise()}, {"none": Defense()}, clients=2, examples=5, threat=threat), tmp_path / "more", compute
    )
    for record in records(tmp_path / "more"):
        assert {"tf32", "labels-inferred", "repeated-labels"} <= set(record.flags)


def test_a_picture_better_than_the_mean_color_is_not_blank(tmp_path: Path) -> None:
    first = audit({"a": Noise()}, {"none": Defense()})
    private = dict(zip(first.scenario.names, first.scenario.private.images, strict=True))
    close = Noise(change=lambda name, picture: private[name] + 0.01)
    run_audit(replace(first, attacks={"a": close}), tmp_path / "run")
    for record in records(tmp_path / "run"):
        assert "not-better-than-blank" not in record.flags
        assert record.scores["retrieval"] == 1.0


def test_config_and_provenance_say_what_was_run(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}, seed=7), tmp_path / "run")
    config = tomllib.loads((tmp_path / "run/config.toml").read_text())
    assert (config["seed"], config["scenario"]["images"], config["defense"]["none"]["name"]) == (7, 3, "none")
    provenance = json.loads((tmp_path / "run/provenance.json").read_text())
    assert all(len(provenance[f"{what}_sha256"]) == 64 for what in ("model", "data", "config"))
    assert provenance["torch"] == torch.__version__
    assert provenance["gallery"] == 10


def test_float64_runs_in_float64(tmp_path: Path) -> None:
    noise = Noise()
    run_audit(audit({"a": noise}, {"none": Defense()}), tmp_path / "run", Compute(precision="float64"))
    assert {update.dtype for update in noise.seen[0].update.values()} == {torch.float64}
