"""A recommendation in small: what it advises, what it costs, the folder after a kill, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gradveil.core.errors import ConfigError
from gradveil.defenses import parse_defense
from gradveil.experiment.seal import find_changes
from gradveil.recommend.deploy import read_deployed
from gradveil.recommend.outcome import Advice
from gradveil.recommend.recommend import guess_one_class, recommend
from gradveil.recommend.settings import RecommendSettings, check_settings
from gradveil.recommend.summary import answer

TINY: dict[str, Any] = {
    "data_options": {"count": 200, "size": 8},
    "model": "mlp",
    "defenses": ("gaussian", "dpsgd", "sign", "mixup"),
    "named_at_most": 0.1,
    "spare": 100.0,
    "winners": 2,
    "lineup": 101,
    "standins": 16,
    "rounds": 3,
    "clients": 4,
    "per_round": 2,
    "split": "iid",
    "rate": 0.1,
    "seeds": 2,
    "images": 8,
    "stages": (1.0,),
    "attacks": ("linear",),
}


def tiny(**changes: Any) -> RecommendSettings:
    return RecommendSettings(**{**TINY, **changes})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Advice, Path]:
    folder = tmp_path_factory.mktemp("recommend") / "run"
    return recommend(tiny(), folder), folder


def test_it_advises_what_reaches_the_limit(found: tuple[Advice, Path]) -> None:
    advice, folder = found
    assert advice.winner == "dpsgd"
    best = advice.best
    assert best is not None
    assert best.found is not None
    assert best.found.enough is not None
    assert best.found.enough.at_most <= 0.08  # a fifth of the limit is left for other models
    assert best.worst_after is not None
    assert best.worst_after.at_most <= 0.1
    content = json.loads((folder / "recommendation.json").read_text())
    assert parse_defense(content["deploy"]) == parse_defense(f"dpsgd:noise={best.found.enough.strength}")
    assert read_deployed(folder) == content["deploy"]
    assert len(advice.sentences) == 3
    assert not find_changes(folder)


def test_what_it_costs_is_over_the_same_trainings(found: tuple[Advice, Path]) -> None:
    advice, _ = found
    best = advice.best
    assert best is not None
    assert best.point is not None
    assert best.point.cost is not None
    apart = [advice.plain.accuracies[n] - best.point.accuracies[n] for n in (0, 1)]
    assert best.point.cost.mean == pytest.approx(sum(apart) / 2)
    assert best.cost == pytest.approx(50 * sum(apart))


def test_the_winner_is_attacked_and_the_others_are_not(found: tuple[Advice, Path]) -> None:
    advice, folder = found
    assert advice.best is not None
    assert [path.name for path in (folder / "points").iterdir()] == [advice.best.name]
    assert advice.best.point is not None
    assert advice.best.point.leakage is not None
    assert advice.best.point.leakage.pictures == 8


def test_what_does_not_hold_after_training_is_made_stronger(found: tuple[Advice, Path]) -> None:
    """Noise of a fixed size makes the model's own updates longer, and is then too weak."""
    (noisy,) = (one for one in found[0].advised if one.label == "gaussian")
    assert noisy.again >= 1
    assert noisy.name == f"gaussian.{noisy.again + 1}"
    assert noisy.strength is not None
    assert noisy.strength.at_most <= 0.08
    assert noisy.point is not None
    assert noisy.point.candidate.choice.options == {"scale": noisy.strength.strength}


def test_those_that_do_not_apply_or_hide_nothing_are_named(found: tuple[Advice, Path]) -> None:
    by = {one.label: one for one in found[0].advised}
    assert not by["sign"].reached
    assert by["sign"].found is not None
    assert by["sign"].found.strongest.share == 1.0
    assert "more than the 1 pictures" in by["mixup"].reason
    assert by["sign"].point is None


def test_a_model_that_learned_nothing_has_nothing_to_lose(found: tuple[Advice, Path]) -> None:
    """Then the cost says nothing, whatever it is; and a certificate of all pictures is none to speak of."""
    advice, folder = found
    assert advice.plain.accuracy is not None
    assert json.loads((folder / "recommendation.json").read_text())["guessing"] == pytest.approx(advice.guessing)
    for guessing, is_said in ((advice.plain.accuracy.mean - 0.01, False), (advice.plain.accuracy.mean, True)):
        costs = list(answer(replace(advice, guessing=guessing)))[1]
        assert ("the model learned nothing either" in costs) is is_said
    best = advice.best
    assert best is not None
    assert best.found is not None
    assert best.found.certificate is not None
    open_ = replace(best.found, certificate=replace(best.found.certificate, at_most=0.999))
    others = tuple(replace(one, found=open_) if one is best else one for one in advice.advised)
    assert "a certificate that rules nothing out" in list(answer(replace(advice, advised=others)))[2]


@pytest.mark.parametrize(
    ("labels", "share"),
    [([[1.0, 0], [1, 0], [0, 1], [1, 0]], 0.75), ([[1.0, 1], [1, 0], [0, 0], [1, 1]], (0.75 + 0.5) / 2)],
)
def test_guessing_is_the_most_frequent_class_or_the_commoner_value_of_each_attribute(
    labels: list, share: float
) -> None:
    assert guess_one_class(torch.tensor(labels)) == pytest.approx(share)


@pytest.mark.parametrize("kept", [0, 4, 14])
def test_it_goes_on_where_it_was_killed(found: tuple[Advice, Path], tmp_path: Path, kept: int) -> None:
    _, folder = found
    again = Path(shutil.copytree(folder, tmp_path / "run"))
    journal = again / "study/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) > kept
    journal.write_bytes(b"".join(lines[:kept]) + lines[kept][:30])
    for name in ("recommendation.json", "report.html", "seal.json"):
        (again / name).unlink()
    if kept == 0:
        shutil.rmtree(again / "points")
        shutil.rmtree(again / "models")
    recommend(tiny(), again)
    for name in ("recommendation.json", "report.html"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_nothing_within_what_can_be_spared_is_an_answer(tmp_path: Path) -> None:
    advice = recommend(tiny(defenses=("sign",), seeds=1), tmp_path / "run")
    assert advice.best is None
    assert advice.sentences[0].startswith("Nothing reaches 10.0 % within the 100 points")
    assert json.loads((tmp_path / "run/recommendation.json").read_text())["deploy"] is None
    with pytest.raises(ConfigError, match="recommends no defense"):
        read_deployed(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"named_at_most": 2.0}, "between 0 and 1"),
        ({"named_at_most": 0.005}, "random guessing"),
        ({"spare": -1.0}, "between 0 and 100"),
        ({"defenses": ("gausian",)}, "unknown name"),
        ({"defenses": ("gaussian", "gaussian")}, "twice"),
        ({"defenses": ("prune:ratio=0.9",)}, "is what is calibrated"),
        ({"winners": 0}, "must be between 1"),
        ({"named_at_most": 0.02, "standins": 0}, "can show no bound"),
        ({"rounds": 0}, "rounds"),
    ],
)
def test_what_cannot_be_done_is_one_line(changes: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=what) as error:
        recommend(tiny(**changes), tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_every_family_of_the_catalogue_has_a_label_of_its_own() -> None:
    families = check_settings(RecommendSettings())
    assert len(families) == len(RecommendSettings().texts)
    assert {"gaussian", "dpsgd", "prune", "dpsgd+prune-0.9"} <= set(families)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"deploy": 3}', '{"deploy": "recommended:x"}'])
def test_a_folder_that_recommends_nothing_readable_is_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no recommendation\.json"):
        read_deployed(tmp_path)
    with pytest.raises(ConfigError, match="recommended: names no run"):
        read_deployed("")
    (tmp_path / "recommendation.json").write_text(content)
    with pytest.raises(ConfigError):
        read_deployed(tmp_path)
