"""A trial computed again is the same to the last bit, and what was changed is noticed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toys import Noise, audit

from gradveil.audit.audit import run_audit
from gradveil.cli import main
from gradveil.config import build, from_tables
from gradveil.config.reproduce import Comparison, reproduce
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.experiment import journal
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.record import Record

MODEL = """
from torch import nn

def build(classes, shape):
    size = shape[0] * shape[1] * shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 32), nn.Sigmoid(), nn.Linear(32, classes))
"""
TABLES = {
    "seed": 3,
    "metrics": ["psnr", "retrieval"],
    "convergence": False,
    "lineup": 20,
    "scenario": {"data": "digits", "model": "mlp", "images": 3, "batch_size": 2, "attacker": "curious"},
    "defense": {"none": {}, "gaussian": {"scale": 0.01}, "prune": {"ratio": 0.5}},
    "attack": {"linear": {}, "dlg": {"steps": 8, "restarts": 1}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("reproduce") / "run"
    torch.set_num_threads(1)
    run_audit(build(from_tables(TABLES)), found)
    return found


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def records(folder: Path) -> list[Record]:
    return journal.read(folder / "journal.jsonl")


def rewrite(folder: Path, changed: Record) -> None:
    """As if the run had stored this instead."""
    kept = [changed if record.key == changed.key else record for record in records(folder)]
    (folder / "journal.jsonl").write_bytes(b"".join(map(journal.encode, kept)))


def tree(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def one_of_each(folder: Path) -> list[Record]:
    """A trial of every cell and control."""
    return list({(r.scenario, r.defense, r.attack, r.attacker, r.control): r for r in records(folder)}.values())


def test_a_trial_of_every_cell_and_control_comes_out_identical_and_nothing_is_written(folder: Path) -> None:
    before = tree(folder)
    chosen = one_of_each(folder)
    assert {"", "prior", "random", "another", "lineup"} == {record.control for record in chosen}
    assert {"unaware", "adaptive"} == {record.attacker for record in chosen}
    for record in chosen:
        compared = reproduce(folder, record.key)
        assert (compared.summary, compared.identical, compared.agrees) == ("identical", True, True)
        assert compared.same_pictures is (None if record.control in ("another", "lineup") else True)
    assert tree(folder) == before


def test_a_line_up_that_was_changed_is_named(folder: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "run"))
    stored = next(record for record in records(copied) if record.control == "lineup")
    rewrite(copied, replace(stored, ranks={**stored.ranks, "rank": [2, *stored.ranks["rank"][1:]]}))
    compared = reproduce(copied, stored.key)
    assert not compared.agrees
    assert compared.summary == "ranks of the line-up: rank"


@pytest.mark.more
def test_a_run_in_workers_on_other_devices_and_with_other_threads_is_the_same(tmp_path: Path) -> None:
    audited = build(from_tables({**TABLES, "defense": {"none": {}}}))
    run_audit(audited, tmp_path / "run", Compute(workers=2, precision="float64", backend="loop", chunk=2))
    torch.set_num_threads(2)  # the fixture sets it back
    for record in records(tmp_path / "run")[::12]:
        assert reproduce(tmp_path / "run", record.key).summary == "identical"
    assert torch.get_num_threads() == 2


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    for path, (content, _) in tree(folder).items():
        target = tmp_path / "run" / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return tmp_path / "run"


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 0


def test_a_score_that_differs_is_told_and_the_exit_code_says_so(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = next(r for r in records(copy) if r.attack == "dlg" and r.status == "ok")
    scores = record.scores
    near = replace(record, scores={**scores, "psnr": scores["psnr"] + 0.05})
    rewrite(copy, near)
    assert code("reproduce-cell", str(copy), "--trial", record.key) == 0
    printed = capsys.readouterr().out
    assert printed == f"within rounding: psnr {scores['psnr'] + 0.05:.3f} -> {scores['psnr']:.3f}\n"
    far = replace(record, scores={**scores, "psnr": scores["psnr"] + 3, "retrieval": 1 - scores["retrieval"]})
    rewrite(copy, far)
    assert code("reproduce-cell", str(copy), "--trial", record.key) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["psnr", "retrieval"]
    assert all(re.fullmatch(r"\w+ -?[\d.]+ -> -?[\d.]+", line) for line in lines)


def test_one_bit_of_a_picture_is_noticed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = next(r for r in records(copy) if r.images)
    stored = load_file(copy / "images" / record.images)
    stored["reconstructed"].view(torch.int32)[record.example, 0, 0, 0] ^= 1
    save_file(stored, copy / "images" / record.images)
    compared = reproduce(copy, record.key)
    assert (compared.identical, compared.agrees, compared.same_pictures) == (False, True, False)
    assert compared.summary == "within rounding: every score is the same, the last bits are not"


def test_a_run_without_its_pictures_is_compared_by_its_scores(copy: Path) -> None:
    record = next(r for r in records(copy) if r.images)
    (copy / "images" / record.images).unlink()
    compared = reproduce(copy, record.key)
    assert (compared.summary, compared.same_pictures) == ("identical", None)


def test_a_failed_trial_is_compared_by_status_and_reason(tmp_path: Path, copy: Path) -> None:
    changes = {"scenario": {**TABLES["scenario"], "model": "lenet"}, "attack": {"linear": {}}, "lineup": 0}
    run_audit(build(from_tables({**TABLES, **changes})), tmp_path / "fails")
    record = records(tmp_path / "fails")[0]
    assert record.status == "failed"
    assert reproduce(tmp_path / "fails", record.key).summary == "identical"
    rewrite(tmp_path / "fails", replace(record, reason="it rained"))
    assert reproduce(tmp_path / "fails", record.key).summary == f"reason 'it rained' -> {record.reason!r}"
    passed = records(copy)[0]
    rewrite(copy, replace(passed, status="failed", scores={}, loss=None, reason="its process died 3 times", images=""))
    compared = reproduce(copy, passed.key)
    assert not compared.agrees
    assert compared.summary == "status failed -> ok: its process died 3 times"


def test_an_unknown_trial_is_answered_with_a_few_near_ones(folder: Path) -> None:
    wrong = next(r for r in records(folder) if r.attack == "linear").key.replace("linear", "linaer")
    with pytest.raises(ConfigError, match=r"trial: unknown name .*did you mean 'digits-mlp-b2/") as printed:
        reproduce(folder, wrong)
    assert str(printed.value).count("digits-mlp-b2/") <= 5
    with pytest.raises(ConfigError, match="trial: unknown name 'x', known: ") as printed:
        reproduce(folder, "x")
    assert str(printed.value).count(", digits") <= 3


def test_what_is_not_the_same_any_more_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = build(from_tables({**TABLES, "scenario": {**TABLES["scenario"], "model_seed": 5}})).scenario.model
    save_file(model.state_dict(), "w.safetensors")
    tables = {**TABLES, "scenario": {**TABLES["scenario"], "weights": "w.safetensors"}, "attack": {"linear": {}}}
    run_audit(build(from_tables(tables)), "run")
    key = records(Path("run"))[0].key
    assert reproduce("run", key).identical
    with torch.no_grad():
        next(model.parameters()).flatten()[0] += 1e-3
    save_file(model.state_dict(), "w.safetensors")
    with pytest.raises(ConfigError, match=r"run: model_sha256 is not the same here, give the model"):
        reproduce("run", key)


def test_a_model_of_ones_own_is_given_again_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODEL)
    tiny = ("--data", "digits", "--images", "2", "--attack", "linear", "--metric", "psnr", "--defense", "none")
    assert code("audit", *tiny, "--model", "mine.py:build", "--out", "run", "--quiet") == 0
    key = records(tmp_path / "run")[0].key
    capsys.readouterr()
    assert code("reproduce-cell", "run", "--trial", key) == 2
    assert "a model file is never taken from a config, give it as --model mine.py:build" in capsys.readouterr().err
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine.py").rename(tmp_path / "elsewhere/mine.py")
    assert code("reproduce-cell", "run", "--trial", key, "--model", "elsewhere/mine.py:build") == 0
    assert capsys.readouterr().out == "identical\n"
    assert code("reproduce-cell", "run", "--trial", key, "--model", "lenet") == 2
    assert "--model: the model of this run is mine.py:build" in capsys.readouterr().err
    (tmp_path / "elsewhere/mine.py").write_text(MODEL.replace("Sigmoid", "ReLU").replace("32", "33"))
    assert code("reproduce-cell", "run", "--trial", key, "--model", "elsewhere/mine.py:build") == 2
    assert "model_sha256 is not the same here" in capsys.readouterr().err


def test_a_run_that_was_made_by_hand_says_so(tmp_path: Path) -> None:
    run_audit(audit({"a": Noise()}), tmp_path / "run")
    with pytest.raises(ConfigError, match="made through the library by hand"):
        reproduce(tmp_path / "run", records(tmp_path / "run")[0].key)


def test_a_folder_that_is_none_and_a_run_of_another_version(
    copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code("reproduce-cell", str(tmp_path / "nothing"), "--trial", "x") == 2
    assert "no such folder" in capsys.readouterr().err
    (copy / "provenance.json").write_text("{}\n")
    with pytest.raises(ConfigError, match="made by another version"):
        reproduce(copy, records(copy)[0].key)


def test_a_run_that_is_not_finished_can_be_looked_at(copy: Path) -> None:
    path = copy / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert reproduce(copy, records(copy)[0].key).identical


def test_another_device_is_asked_for_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = records(folder)[0].key
    assert code("reproduce-cell", str(folder), "--trial", key, "--device", "cpu") == 0
    assert code("reproduce-cell", str(folder), "--trial", key, "--device", "abacus") == 2
    if not torch.cuda.is_available():
        assert code("reproduce-cell", str(folder), "--trial", key, "--device", "cuda") == 2
        assert "--device: cuda is not here" in capsys.readouterr().err


def test_a_changed_provenance_is_not_believed(copy: Path) -> None:
    path = copy / "provenance.json"
    path.write_text(path.read_text().replace('"shard": 32', '"shard": 33'))
    with pytest.raises(ConfigError, match=r"provenance\.json: changed since it was written"):
        RunFolder(copy).read_provenance()
    with pytest.raises(ConfigError, match=r"provenance\.json: changed since it was written"):
        reproduce(copy, records(copy)[0].key)


def test_limits_by_hand() -> None:
    stored = Record(key="k", status="ok", scenario="s", defense="d", attack="a", attacker="unaware", client="c",
                    example=0, seed=1, seconds=0.0, backend="loop", scores={"psnr": 20.0, "ssim": 0.5})  # fmt: skip

    def again(**scores: float) -> Comparison:
        return Comparison(stored=stored, again=replace(stored, scores=scores))

    assert again(psnr=20.0, ssim=0.5).identical
    assert again(psnr=20.09, ssim=0.509).agrees
    assert again(psnr=20.09, ssim=0.509).summary == "within rounding: psnr 20.000 -> 20.090, ssim 0.5000 -> 0.5090"
    assert again(psnr=20.11, ssim=0.5).summary == "psnr 20.000 -> 20.110"
    assert again(psnr=20.0, ssim=0.52).summary == "ssim 0.5000 -> 0.5200"
    assert again(psnr=20.0).summary == "ssim 0.5000 -> absent"
    assert again(psnr=float("nan"), ssim=0.5).summary == "psnr 20.000 -> nan"
    copied = replace(stored, scores={"psnr": 156.8})
    rounded = Comparison(stored=copied, again=replace(stored, scores={"psnr": 141.3}))
    assert (rounded.agrees, rounded.summary) == (True, "within rounding: psnr 156.800 -> 141.300 (both exact)")
    assert not Comparison(stored=copied, again=replace(stored, scores={"psnr": 50.0})).agrees
