"""A whole study in seconds: the same numbers however it is run, interrupted or gone on with."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tradeoff_fakes import tiny

from gradveil.audit.results import read_run
from gradveil.core.compute import Compute
from gradveil.core.errors import ConfigError
from gradveil.experiment import journal
from gradveil.experiment.progress import Silent
from gradveil.tradeoff import StudyOutcome, tradeoff
from gradveil.tradeoff.defenses import noise
from gradveil.tradeoff.leakage import Auditor
from gradveil.tradeoff.page import write_study_page
from gradveil.tradeoff.split import choose_gallery, choose_victims, split_pictures
from gradveil.tradeoff.study import load_study
from gradveil.tradeoff.training import Trainer, Training
from gradveil.train.partition import partition


class Heard(Silent):
    """Every total that was told, with the number of cells that had begun by then, and how many ended."""

    def __init__(self) -> None:
        self.totals: list[tuple[int, int]] = []
        self.begun = self.ended = 0

    def begin(self, cells: int) -> None:
        self.totals.append((self.begun, cells))

    def start(self, cell: str, trials: int) -> None:
        self.begun += 1
        assert self.begun <= self.totals[-1][1], cell

    def done(self, trials: int, failed: int) -> None:
        self.ended += 1


@pytest.fixture(scope="module")
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, heard: Heard) -> Iterator[tuple[StudyOutcome, Path]]:
    before, folder = torch.get_num_threads(), tmp_path_factory.mktemp("study") / "run"
    torch.set_num_threads(1)
    yield tradeoff(tiny(), folder, progress=heard), folder
    torch.set_num_threads(before)


def test_the_progress_counts_what_is_done_and_ends_at_its_total(found: tuple[StudyOutcome, Path], heard: Heard) -> None:
    """Two trainings and an audit of every point; those of the matched noise are told once they are known."""
    assert heard.totals[0] == (0, 3 * 3)
    assert heard.totals[-1][1] == heard.begun == heard.ended == 3 * len(found[0].points)


def test_a_study_that_goes_on_counts_what_is_left(found: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    again, heard = Path(shutil.copytree(found[1], tmp_path / "run")), Heard()
    tradeoff(tiny(), again, progress=heard)
    assert {total for _, total in heard.totals} == {0}
    assert heard.begun == 0


def test_precode_is_attacked_with_the_bottleneck_that_it_trained(tmp_path: Path) -> None:
    """What is audited is the checkpoint, every name of it."""
    own: dict[str, Any] = {"defenses": ("precode:size=4",), "seeds": 1, "match": 0, "noise": (1e-1,)}
    study, folder = tiny(**own), tmp_path / "run"
    outcome = tradeoff(study, folder)
    (point,) = (point for point in outcome.points if point.label.startswith("precode"))
    material, models = load_study(study)
    auditor = Auditor(study=study, split=material, models=models, weights=folder / "models", compute=Compute())
    (candidate,) = (one for one in study.candidates() if one.label == point.label)
    audit = auditor.audit(candidate)
    (file,) = (folder / "models").glob("precode*.safetensors")
    kept, sent = load_file(file), candidate.build().model(audit.scenario.model).state_dict()
    assert {name for name in kept if "bottleneck" in name}
    assert kept.keys() == sent.keys()
    assert all(torch.equal(kept[name], sent[name]) for name in kept)


def test_what_it_leaves_behind(found: tuple[StudyOutcome, Path]) -> None:
    outcome, folder = found
    write_study_page(outcome, folder / "report.html")
    assert {path.name for path in folder.iterdir()} <= {
        "study", "points", "models", "tradeoff.json", "report.html", "unfinished", "seal.json",
    }  # fmt: skip
    assert json.loads((folder / "tradeoff.json").read_text()) == json.loads(json.dumps(outcome.to_json()))
    for point in outcome.points:
        assert (folder / "points" / point.label / "report.html").is_file()
        assert read_run(folder / "points" / point.label).records
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*"))


def test_every_point_is_measured_and_the_undefended_leaks(found: tuple[StudyOutcome, Path]) -> None:
    outcome, _ = found
    assert [p.label for p in outcome.points][:3] == ["none", "gaussian-0.1", "prune-0.5"]
    assert all(point.measured and len(point.accuracies) == 2 for point in outcome.points)
    plain = outcome.point("none")
    assert plain.leakage is not None
    assert plain.leakage.leaked == plain.leakage.pictures == 2  # a closed form on a perceptron
    assert plain.verdict == "leaks"
    assert outcome.front
    assert outcome.point("prune-0.5").against is not None


def test_it_goes_on_where_it_was_killed(found: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    outcome, folder = found
    for kept in (2, 5):
        again = Path(shutil.copytree(folder, tmp_path / str(kept)))
        shutil.rmtree(again / "points" / "prune-0.5")
        path = again / "study/journal.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:kept]) + b'{"key":"torn')
        assert tradeoff(tiny(), again).to_json() == outcome.to_json()
        keys = [record.key for record in journal.read(path)]
        assert len(keys) == len(set(keys)) == len(lines)


@pytest.mark.more
def test_processes_give_the_same_table(found: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    assert tradeoff(tiny(), tmp_path / "run", compute=Compute(workers=2)).to_json() == found[0].to_json()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_table(found: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install gradveil[ray]")
    assert tradeoff(tiny(), tmp_path / "run", compute=Compute(ray="local")).to_json() == found[0].to_json()


def test_another_study_in_the_same_folder_is_refused(found: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    _, folder = found
    with pytest.raises(ConfigError, match=r"tradeoff.rounds is 3 there, 4 here"):
        tradeoff(tiny(rounds=4), folder)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError, match="not the folder of a study"):
        tradeoff(tiny(), tmp_path)


def test_no_time_left_begins_nothing_and_says_what_is_missing(tmp_path: Path) -> None:
    outcome = tradeoff(tiny(), tmp_path / "run", seconds=1e-9)
    assert "unfinished" in outcome.flags
    assert not outcome.front
    assert all(point.missing and point.verdict == "not evaluated" for point in outcome.points)
    write_study_page(outcome, tmp_path / "page.html")


def broken(*arguments: Any, **options: Any) -> Any:
    raise RuntimeError("the loss\nexploded")


def test_a_training_that_breaks_down_is_a_failed_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["gradveil.tradeoff.training"], "train_federation", broken)
    outcome = tradeoff(tiny(seeds=1, match=0), tmp_path / "run")
    assert all("RuntimeError: the loss exploded" in point.failed for point in outcome.points)
    assert not outcome.front
    assert "exploded" in write_study_page(outcome, tmp_path / "page.html").read_text()


def test_a_defense_that_has_nothing_to_act_on_is_said_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="defenses: dpsgd"):
        tradeoff(tiny(defenses=("dpsgd",), model="convnet8", batchnorm="batch", data_options={"count": 40, "size": 32}),
            tmp_path / "run")  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_victims_are_the_clients_own_and_not_in_the_gallery() -> None:
    study = tiny(images=6, victim_batch=2)
    material = split_pictures(study.audit_config(study.candidates()[0]).scenario)
    found = choose_victims(material, study.federation(0), 6, 2)
    shares = partition(material.dataset.targets, study.federation(0))
    assert found.names == ("client-0.0", "client-1.0", "client-2.0", "client-3.0", "client-0.1", "client-1.1")
    for name, places in zip(found.names, found.places, strict=True):
        client = int(name.partition(".")[0].removeprefix("client-"))
        assert set(places.tolist()) <= set(shares[client].tolist())
    others = choose_gallery(material, [found]).images
    assert len(others) == len(material.dataset) - 12
    assert not any(torch.equal(other, one) for other in others for one in found.private.images.flatten(0, 1))
    with pytest.raises(ConfigError, match="images: must be at most"):
        choose_victims(material, study.federation(0), 100, 2)


def test_the_same_training_without_a_defense_as_with_no_noise_at_all() -> None:
    """Pairs: what differs between two points of one seed is the defense alone."""
    study = tiny()
    material, models = load_study(study)
    trainer = Trainer(study=study, split=material, models=models)
    plain, tiny_noise = study.candidates()[0], noise(1e-12)
    scores = [trainer(Training(candidate=one, number=0)).scores["accuracy"] for one in (plain, tiny_noise)]
    assert scores[0] == scores[1]


def test_victims_send_what_clients_of_this_training_send() -> None:
    """Noise has a scale of its own: an update at another rate would be another signal in the same noise."""
    study = tiny(rate=0.37, stages=(0.0,))
    material, models = load_study(study)
    auditor = Auditor(study=study, split=material, models=models, weights=Path(), compute=Compute())
    audit = auditor.audit(study.candidates()[0])
    assert audit.scenario.training.rate == 0.37
    assert audit.scenario.training.steps == 1
    assert not audit.scenario.trained
