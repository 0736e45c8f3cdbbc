"""Audits of tasks beyond one label a picture, from the command line: masks, numbers, soft and several labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tasks import tasks, write_task

import gradveil
from gradveil.cli import main
from gradveil.core.own_loss import load_loss
from gradveil.core.scenario import LocalTraining

QUICK = [
    "--budget",
    "quick",
    "--attack",
    "lbfgs-cosine:steps=60,restarts=1",
    "--images",
    "2",
    "--lineup",
    "11",
    "--yes",
]


def call(arguments: Sequence[str]) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


def run(folder: Path, task: str, *more: str) -> list[dict[str, Any]]:
    """The records of an audit."""
    options = write_task(folder, tasks()[task])
    given = [*QUICK, "--defense", "none", *more]
    assert call(["audit", *options, *given, "--out", str(folder / "run"), "--quiet"]) == 0
    return [json.loads(line) for line in (folder / "run/journal.jsonl").read_text().splitlines()]


def of_attack(records: list[dict[str, Any]], **wanted: str) -> list[dict[str, Any]]:
    """Those of the unaware attacker on the audited scenario."""
    wanted = {"attacker": "unaware", "control": "", **wanted}
    return [
        one
        for one in records
        if all(one.get(key, "") == value for key, value in wanted.items()) and "diagnostic" not in one["scenario"]
    ]


@pytest.mark.parametrize(
    "task", [pytest.param(name, marks=[pytest.mark.more] if "mask" in name else []) for name in tasks()]
)
def test_pictures_are_recovered_and_named(task: str, tmp_path: Path) -> None:
    """With the targets known every picture comes nearer than the blank one, and is first in its line-up."""
    records = run(tmp_path, task)
    found = of_attack(records)
    assert len(found) == 2
    for one in found:
        assert one["status"] == "ok", one.get("reason")
        assert one["scores"]["psnr"] > one["blank"] + 3
    lineups = [one for one in records if one.get("control") == "lineup"]
    assert [one["ranks"]["rank"][0] for one in lineups] == [1, 1]


VARIED = [
    ("masks", ("--batch-size", "4")),
    ("masks", ("--local-steps", "3", "--local-rate", "0.1")),
    ("masks", ("--batch-size", "4", "--local-steps", "3", "--local-rate", "0.1", "--local-batch-size", "2")),
    ("masks", ("--local-steps", "3", "--local-rate", "0.01", "--optimizer", "adam")),
    ("masks", ("--defense", "gaussian:scale=0.001", "--defense", "prune:ratio=0.5")),
    ("masks", ("--defense", "dpsgd:noise=0.1,clip=10")),
    ("masks", ("--defense", "mixup:k=2", "--batch-size", "2")),
    ("masks", ("--defense", "oasis", "--attack", "invertgrad:steps=10,restarts=1")),
    ("masks", ("--augment", "crop-flip")),
    ("masks", ("--bn", "batch")),
    ("numbers", ("--labels", "inferred")),
    ("numbers", ("--batch-size", "4", "--local-steps", "3", "--local-rate", "0.1")),
    ("numbers", ("--defense", "gaussian:scale=0.001", "--defense", "prune:ratio=0.5")),
    ("soft labels, own loss", ("--labels", "inferred")),
    ("several labels", ("--labels", "inferred", "--batch-size", "2")),
]


@pytest.mark.more
@pytest.mark.parametrize(("task", "more"), VARIED, ids=[f"{task}: {' '.join(more)}" for task, more in VARIED])
def test_no_trial_fails(task: str, more: tuple[str, ...], tmp_path: Path) -> None:
    for one in run(tmp_path, task, *more):
        assert one["status"] == "ok", one["reason"]


@pytest.mark.more
def test_targets_that_no_rule_reads_are_searched_and_scored(tmp_path: Path) -> None:
    found = of_attack(run(tmp_path, "masks", "--labels", "inferred"))
    for one in found:
        assert one["status"] == "ok", one.get("reason")
        assert any("targets are searched with the pictures" in note for note in one["notes"])
        assert 0 <= one["scores"]["mask-iou"] <= one["scores"]["labels"] <= 1


def test_what_needs_labels_is_left_out_in_one_line(tmp_path: Path) -> None:
    options = write_task(tmp_path, tasks()["masks"])
    given = ["--budget", "quick", "--images", "1", "--labels", "inferred", "--defense", "none", "--lineup", "off"]
    given += ["--attack", "linear-model", "--attack", "r-gap", "--attack", "coarse-to-fine:steps=4", "--yes"]
    assert call(["audit", *options, *given, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    records = [json.loads(line) for line in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    failed = of_attack(records)
    assert {one["status"] for one in failed} == {"failed"}
    assert all(one["reason"].startswith("NotApplicableError: ") and "\n" not in one["reason"] for one in failed)
    verdict = json.loads((tmp_path / "run/verdict.json").read_text())
    assert {one["verdict"] for one in verdict["findings"]} == {"inconclusive"}


@pytest.mark.more
def test_the_first_looks_do_not_break(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = write_task(tmp_path, tasks()["masks"])
    assert call(["doctor", *options, "--images", "1"]) == 0
    assert "masks of 3 classes" in capsys.readouterr().out
    assert call(["audit", *options, *QUICK, "--dry-run"]) == 0


WRONG = {
    "vector": "it must return one number, the mean over the pictures",
    "nan": "it returned nan",
    "detaches": "it has no slope by the outputs",
    "zero": "its gradient is 0 in every weight",
    "raises": "raised ValueError: on two lines",
    "leaves": "raised SystemExit: 0",
    "number": "it returned a float",
    "text": "text is a str",
    "nothing": "no loss 'nothing'",
}


@pytest.mark.parametrize(("name", "message"), WRONG.items())
def test_a_loss_that_cannot_be_descended_ends_with_one_line(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [one.replace("dice_ce", name) for one in write_task(tmp_path, tasks()["masks"])]
    assert call(["audit", *options, "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --loss: ")
    assert message in line
    assert not (tmp_path / "run").exists()


def test_numbers_need_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = write_task(tmp_path, tasks()["numbers"])[:4]
    assert call(["audit", *options, "--out", str(tmp_path / "run")]) == 2
    assert "call for a loss of your own" in capsys.readouterr().err


def test_a_config_cannot_bring_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = write_task(tmp_path, tasks()["masks"])
    config = tmp_path / "audit.toml"
    config.write_text(f'[scenario]\nattacker = "curious"\nimages = 1\nloss = "{options[-1]}"\n')
    assert call(["audit", str(config), *options[:4]]) == 2
    assert "a loss's file is never taken from a config, give it as --loss" in capsys.readouterr().err
    given = [*options, "--attack", "lbfgs-cosine:steps=3,restarts=1", "--lineup", "off", "--quiet", "--yes"]
    assert call(["audit", str(config), *given, "--defense", "none", "--out", str(tmp_path / "run")]) == 0


@pytest.mark.more
def test_a_run_is_computed_again_and_not_resumed_under_another_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = run(tmp_path, "masks")
    net = f"{tmp_path}/net.py"
    again = ["reproduce-cell", str(tmp_path / "run"), "--trial", of_attack(records)[0]["key"], "--model", f"{net}:unet"]
    assert call(again) == 2
    assert call([*again, "--loss", f"{net}:dice_ce"]) == 0
    options = write_task(tmp_path, tasks()["masks"])
    Path(net).write_text(Path(net).read_text().replace("+ 1 -", "+ 2 -"))
    assert call(["audit", *options, *QUICK, "--defense", "none", "--out", str(tmp_path / "run"), "--quiet"]) == 2
    capsys.readouterr()


@pytest.mark.more
def test_a_redacted_report_hides_the_path_of_a_loss(tmp_path: Path) -> None:
    run(tmp_path, "masks", "--redact")
    page = (tmp_path / "run/report.html").read_text()
    assert "net.py" not in page
    assert str(tmp_path) not in page


def test_a_loss_is_given_in_python(tmp_path: Path) -> None:
    options = write_task(tmp_path, tasks()["numbers"])
    model, data, loss = options[1::2]
    given = {"attacks": ["lbfgs-cosine:steps=60,restarts=1"], "defenses": ["none"], "images": 1, "lineup": 0}
    by_name = gradveil.audit(tmp_path / "a", model=model, data=data, loss=loss, budget="quick", **given)
    steps = LocalTraining(loss=load_loss(loss), optimizer="adam", rate=0.01)
    by_value = gradveil.audit(tmp_path / "b", model=model, data=data, training=steps, budget="quick", **given)
    assert (by_name.findings[0].tally.attempted, by_value.findings[0].tally.attempted) == (1, 1)
    assert f'loss = "{loss}"' in (tmp_path / "b/config.toml").read_text()


def test_a_closed_form_reads_the_input_of_a_regression(tmp_path: Path) -> None:
    """Whatever the loss is, dW = d x' and db = d."""
    options = write_task(tmp_path, tasks()["numbers"])
    given = ["--attack", "linear", "--defense", "none", "--images", "2", "--lineup", "off", "--quiet", "--yes"]
    assert call(["audit", *options, *given, "--labels", "inferred", "--out", str(tmp_path / "run")]) == 0
    records = [json.loads(line) for line in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    assert min(one["scores"]["psnr"] for one in of_attack(records)) > 60
