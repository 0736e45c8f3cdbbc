"""`gradveil bench strength`: the same updates for everybody, as much time, and a table that says where we lose."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from gradveil.bench.strength import contest
from gradveil.bench.strength.cases import Case, make_case, victims
from gradveil.bench.strength.contest import OURS, Entry, judge, judge_blank, steps_within
from gradveil.bench.strength.measure import Strength, is_complete
from gradveil.bench.strength.peers import describe_case, export_case, read_peer
from gradveil.bench.strength.run import TABLE, run, table_of
from gradveil.bench.strength.settings import SETTINGS, Setting, list_settings
from gradveil.bench.strength.table import COLUMNS, compare, make_rows, sentences
from gradveil.cli import main
from gradveil.core.client import in_client_mode, local_update, parameters_of
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.scenario import LocalTraining
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.models import MODELS

SMALL = Setting(model="mlp", pictures="photos", clients=2, batch=2)


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case(SMALL, {}, 0)


def entry(name: str, *psnr: list[float], rank: float = 1.0) -> Entry:
    same = [[rank] * len(some) for some in psnr]
    return Entry(attack=name, psnr=list(psnr), ssim=same, rank=same, seconds=1.0)


def save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 1


def test_the_list_has_what_was_designed() -> None:
    full = SETTINGS["full"]
    assert {one.model for one in full} == {"mlp", "lenet", "lenet5", "convnet", "resnet20", "vit"}
    assert {one.batch for one in full} == {1, 4, 8}
    assert {one.steps for one in full} == {1, 5}
    assert {one.pictures for one in full} == {"cifar10", "faces", "xrays", "cells"}
    assert {one.trained for one in full} == {one.infers for one in full} == {True, False}
    for extent, some in SETTINGS.items():
        assert len({one.name for one in some}) == len(some), extent


def test_photographs_stand_in_for_what_nobody_gave_and_each_setting_is_there_once() -> None:
    found = list_settings("full", ["faces"])
    assert {one.pictures for one in found} == {"photos", "faces"}
    assert len({one.name for one in found}) == len(found) < len(SETTINGS["full"])


def test_everybody_gets_the_same_updates_and_another_seed_others(case: Case) -> None:
    again, other = make_case(SMALL, {}, 0), make_case(SMALL, {}, 1)
    assert all(torch.equal(value, again.seen.update[name]) for name, value in case.seen.update.items())
    assert torch.equal(victims(case), victims(again))
    assert not torch.equal(victims(case), victims(other))
    rivals = {picture.numpy().tobytes() for picture in case.gallery}
    assert not rivals & {picture.numpy().tobytes() for picture in victims(case).flatten(0, 1)}


def test_trained_means_other_weights_and_no_victim_among_the_pictures() -> None:
    plain, trained = (make_case(replace(SMALL, trained=t), {}, 0) for t in (False, True))
    weights = [next(one.seen.model.parameters()) for one in (plain, trained)]
    assert not torch.equal(*weights)
    assert torch.equal(victims(plain), victims(trained))


def test_the_truth_is_exact_and_the_blank_is_what_it_says(case: Case) -> None:
    perfect, blank = judge(case, "x", victims(case).flip(1), None, 1.0), judge_blank(case)
    assert {value for some in perfect.psnr for value in some} == {200.0}  # in whatever order
    assert {value for some in perfect.rank for value in some} == {1.0}
    error = (victims(case) - case.gallery.mean((0, 2, 3))[:, None, None]).square().mean((2, 3, 4))
    assert torch.allclose(torch.tensor(blank.psnr, dtype=torch.float64), -10 * error.double().log10(), atol=1e-4)


def test_a_search_gets_the_steps_that_fit_the_time(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**9))
    monkeypatch.setattr(contest, "run_timed", lambda attack, *_: SimpleNamespace(seconds=1 + 0.1 * attack.steps))

    class Search:
        def __init__(self, steps: int) -> None:
            self.steps = steps

        def check(self, seen: object) -> None:
            next(clock)

    def make(*, steps: int = 7) -> Any:
        return Search(steps)

    assert steps_within(make, case, 51.0, Seed(0), Compute()) == 500  # 1 s to set up, 0.1 s each
    assert steps_within(make, case, 0.1, Seed(0), Compute()) == contest.FEWEST
    assert steps_within(lambda: Search(1), case, 51.0, Seed(0), Compute()) is None  # type: ignore[arg-type, return-value]


def test_a_search_that_is_too_slow_is_not_timed_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []

    def run_timed(attack: Any, *_: object) -> SimpleNamespace:
        timed.append(attack.steps)
        return SimpleNamespace(seconds=float(attack.steps))

    monkeypatch.setattr(contest, "run_timed", run_timed)

    def make(*, steps: int = 7) -> Any:
        return SimpleNamespace(steps=steps, check=lambda seen: None)

    assert steps_within(make, case, contest.FEWEST - 1.0, Seed(0), Compute()) == contest.FEWEST
    assert timed == [contest.FEW]


def test_differences_are_by_update_and_a_loss_needs_its_interval() -> None:
    ours, better = entry(OURS, [10, 12], [11, 11], [9, 9]), entry("better", [14, 16], [15, 15.2], [13, 13])
    found = compare(ours, better)
    assert found.count == 3
    assert found.mean == pytest.approx(-(4 + 4.1 + 4) / 3)
    unsure = entry("unsure", [30, 30], [0, 0], [9.1, 9.1])
    rows = {
        row.entry.attack: row for row in make_rows("s", [ours, better, unsure], entry("blank", [8, 8], [9, 9]), 501)
    }
    assert rows["better"].loses
    assert not rows["unsure"].loses
    assert rows[OURS].ahead is None
    assert rows["better"].blank == 8.5
    lines = list(sentences(list(rows.values())))
    assert lines[0].startswith("s: autoattack loses to better by +4.0")
    assert any("is below, not surely, unsure" in line for line in lines)
    assert lines[-1] == "autoattack is the best in 0 of 1 settings and loses to another in 1"
    assert all(len(row.cells()) == len(COLUMNS) for row in rows.values())


def test_of_exact_pictures_none_is_better() -> None:
    """What is left of them is rounding: 90 and 150 dB are the same picture."""
    found = compare(entry(OURS, [90.0], [100.0]), entry("other", [150.0], [151.0]))
    assert (found.mean, found.low, found.high) == (0, 0, 0)
    assert compare(entry(OURS, [70.0], [70.0]), entry("other", [150.0], [79.0])).mean == pytest.approx(-9.5)


@pytest.mark.parametrize("labels", ["known", "inferred"])
def test_what_goes_out_is_what_an_attacker_has(labels: Any, tmp_path: Path) -> None:
    own = make_case(replace(SMALL, labels=labels, steps=2), {}, 0)
    export_case(own, tmp_path)
    (file,) = tmp_path.iterdir()
    tensors = load_file(file)
    with safe_open(file, "pt") as opened:
        about = json.loads(opened.metadata()["setting"])
    assert about == describe_case(own)
    assert ("labels" in tensors) == (labels == "known")
    private = victims(own).numpy().tobytes()
    assert not any(value.numpy().tobytes() in private for value in tensors.values() if value.numel() > 100)
    model = MODELS[about["model"]](
        classes=about["classes"], shape=about["shape"], mean=about["mean"], std=about["std"]
    ).eval()
    model.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
    training = LocalTraining(steps=about["steps"], rate=about["rate"], loss=about["loss"])
    batch = Batch(victims(own)[0], own.truth.private.labels[0])
    again = local_update(
        in_client_mode(model, training), parameters_of(model), batch, training, Defense(), torch.Generator()
    )
    for name, value in again.items():  # whoever has the pictures can repeat the update from the file alone
        torch.testing.assert_close(value, tensors[f"update.{name}"][0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_a_peer_is_judged_as_we_are(case: Case, suffix: str, tmp_path: Path) -> None:
    shown, name = victims(case).flip(1).clone(), case.setting.name
    path = tmp_path / f"theirs.{suffix}"
    if suffix == "npz":
        save_arrays(path, {name: shown.numpy(), f"{name}.seconds": np.array(2.5)})
    else:
        save_file({name: shown, f"{name}.seconds": torch.tensor(2.5)}, path)
    found = read_peer(path, [name]).judge(case)
    assert found is not None
    assert found == judge(case, "theirs", victims(case), None, 2.5)
    assert read_peer(path, [name, "other"]).judge(replace(case, setting=replace(SMALL, clients=9, model="vit"))) is None


def bad_files(folder: Path, name: str, shape: torch.Size) -> Iterator[tuple[Path, str]]:
    right = torch.rand(shape)
    kinds: dict[str, tuple[Any, str]] = {
        "nan": ({name: right * torch.nan}, "must be finite numbers"),
        "flat": ({name: right.flatten(1)}, "must be finite numbers"),
        "whole": ({name: (right * 255).int()}, "must be finite numbers"),
        "unknown": ({"nobody": right}, "is no setting"),
        "nothing": ({f"{name}.seconds": torch.tensor(1.0)}, "no reconstruction"),
        "never": ({name: right, f"{name}.seconds": torch.tensor(-1.0)}, "one number of seconds"),
    }
    for kind, (tensors, words) in kinds.items():
        save_file(tensors, folder / f"{kind}.safetensors")
        yield folder / f"{kind}.safetensors", words
    (folder / "torn.safetensors").write_bytes(b"\x10" * 40)
    yield folder / "torn.safetensors", "no safetensors file"
    (folder / "x.pkl").write_bytes(pickle.dumps({}))
    yield folder / "x.pkl", "pickle"
    yield folder / "absent.npz", "no such file"
    save_arrays(folder / "objects.npz", {name: np.array([{}], dtype=object)})
    yield folder / "objects.npz", "Python objects"
    save_arrays(folder / "words.npz", {name: np.array(["a"])})
    yield folder / "words.npz", "must hold numbers"


def test_a_file_that_cannot_be_used_is_one_line(case: Case, tmp_path: Path) -> None:
    for path, words in bad_files(tmp_path, case.setting.name, victims(case).shape):
        with pytest.raises(ConfigError) as raised:
            read_peer(path, [case.setting.name])
        assert words in str(raised.value), path
        assert "\n" not in str(raised.value)
    save_file({case.setting.name: torch.rand(1, 2, 3, 32, 32)}, tmp_path / "few.safetensors")
    with pytest.raises(ConfigError, match="must have the shape"):
        read_peer(tmp_path / "few.safetensors", [case.setting.name]).judge(case)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two closed forms and one search, hardly any time."""
    monkeypatch.setattr(contest, "CONTESTANTS", ("linear", "april", "invertgrad"))
    monkeypatch.setattr(contest, "LEAST", 0.0)


def test_the_command_runs_resumes_and_takes_a_peer(
    brief: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--only", "mlp-*", "--steps", "2", "--out", str(tmp_path / "out"))
    assert code("bench", "strength", *common, "--json") == 0
    first = json.loads(capsys.readouterr().out)
    attacks = [row["attack"] for row in first["rows"]]
    assert sorted(attacks) == ["autoattack", "invertgrad", "linear"]  # april has nothing to work on
    for row in first["rows"]:
        assert {"psnr", "ssim", "identified", "seconds", "blank"} <= row.keys()
        assert row["blank"] == first["rows"][0]["blank"]
    assert next(row for row in first["rows"] if row["attack"] == "invertgrad")["steps"] >= contest.FEWEST
    assert code("bench", "strength", "export", "--only", "mlp-*", "--out", str(tmp_path / "exported")) == 0
    (exported,) = (tmp_path / "exported").iterdir()
    assert capsys.readouterr().out.strip() == str(exported)
    (name,) = (one.name for one in Strength(only=("mlp-*",)).settings())
    save_file({name: torch.full((2, 4, 3, 32, 32), 0.5)}, tmp_path / "gray.safetensors")
    monkeypatch.setattr("gradveil.bench.strength.measure.run_contest", lambda *_: pytest.fail("computed again"))
    assert code("bench", "strength", *common, "--peer", str(tmp_path / "gray.safetensors")) == 0
    printed = capsys.readouterr().out
    assert "gray" in printed
    assert "blank, dB" in printed
    table = json.loads((tmp_path / "out" / TABLE).read_text())
    assert [row for row in table["rows"] if row["attack"] != "gray"] == first["rows"]


def test_a_setting_that_was_cut_goes_on_where_it_ended(
    brief: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Strength(only=("mlp-*",), steps=2)
    (name,) = (one.name for one in asked.settings())
    path = tmp_path / f"{name}.json"
    run(asked, tmp_path)
    whole = json.loads(path.read_text())
    assert whole["complete"]
    cut = {**whole, "complete": False, "entries": [{**whole["entries"][0], "seconds": 0.25}]}
    path.write_text(json.dumps(cut))
    assert not is_complete(path)
    again = {row.entry.attack: row.entry for row in run(asked, tmp_path)}
    assert again[OURS].seconds == 0.25  # not run again
    assert is_complete(path)
    assert set(again) == {entry["attack"] for entry in whole["entries"]}
    (tmp_path / "half.json").write_text(json.dumps(cut))
    assert {row.entry.attack: row.entry for row in table_of(tmp_path)} == again
    assert {row["setting"] for row in json.loads((tmp_path / TABLE).read_text())["rows"]} == {name}
    path.write_text("{}")
    with pytest.raises(ConfigError, match="cannot be read"):
        table_of(tmp_path)
    assert not is_complete(tmp_path / "absent.json")


def test_a_folder_of_other_settings_is_refused(brief: None, tmp_path: Path) -> None:
    asked = Strength(only=("mlp-*",), steps=2)
    run(asked, tmp_path)
    with pytest.raises(ConfigError, match="made with other steps"):
        run(replace(asked, steps=3), tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--settings", "all"), "--settings: must be quick or full, got 'all'"),
        (("--only", "nothing"), "--only: no setting has such a name"),
        (("--pictures", "dogs=x"), "--pictures: unknown kind 'dogs'"),
        (("--pictures", "faces=absent.zip"), "--pictures: absent.zip: no such file"),
        (("--peer", "absent.npz"), "--peer: absent.npz: no such file"),
    ],
)
def test_bad_options_are_one_line(arguments: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("bench", "strength", *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert error.count("\n") == 0
