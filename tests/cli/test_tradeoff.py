"""`gradveil tradeoff` as a user gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.main import get_command

from gradveil.cli import app, main
from gradveil.tradeoff import StudySettings

TINY = [
    "tradeoff", "--data-option", "count=60", "--data-option", "size=8", "--model", "mlp", "--rounds", "2",
    "--clients", "4", "--per-round", "2", "--split", "iid", "--rate", "0.1", "--seeds", "1", "--images", "2",
    "--stage", "1", "--attack", "linear", "--noise", "0.1", "--random-policies", "0", "--defense", "prune:ratio=0.5",
    "--match", "0", "--device", "cpu",
]  # fmt: skip


def given(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


def test_a_table_a_page_and_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert given(*TINY, "--workers", "0") == 0
    said = capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    content = json.loads((folder / "tradeoff.json").read_text())
    assert said.startswith("defense  ")
    for point in content["points"]:
        assert point["label"] in said
    assert {"none", "gaussian-0.1", "prune-0.5"} == {point["label"] for point in content["points"]}
    assert given("verify", str(folder)) == 0
    assert given(*TINY, "--workers", "0") == 0  # the same study: all is there already
    assert given("verify", str(folder)) == 0
    text = (folder / "report.html").read_text()
    assert "<script" not in text
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--defense", "prume"], "--defense: unknown name 'prume', did you mean 'prune'?"),
        (["--ray", "local", "--workers", "2"], "--workers: a Ray cluster has workers"),
        (["--precision", "float64"], "--precision: must be float32 or tf32 for training"),
        (["--seconds", "-1"], "--seconds: must be above 0"),
        (["--measure", "lpips"], "--measure: must be leaked or one of the metrics"),
        (["--metric", "lpips"], "--lpips-weights: lpips needs AlexNet's LPIPS weights, give the path of the file"),
        (
            ["--metric", "jaccard:top=3"],
            "--metric: jaccard needs the weights of EfficientNet-Lite0 or your own classifier",
        ),
        (["--split", "dirichlet:x"], "--split"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--ray" in arguments:
        pytest.importorskip("ray", reason="ray is not installed: pip install gradveil[ray]")
    assert given("tradeoff", *arguments, "--out", str(tmp_path / "run")) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {said}")
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_defaults_in_the_help_are_those_of_the_study() -> None:
    command = get_command(app).commands["tradeoff"]  # type: ignore[attr-defined]
    helps = {parameter.name: getattr(parameter, "help", "") or "" for parameter in command.params}
    for name in ("seeds", "rounds", "clients", "per_round", "images", "victim_batch", "match", "random_policies",
                 "split", "method", "model", "data", "measure", "budget", "batch_size"):  # fmt: skip
        assert f"(default {getattr(StudySettings(), name)})" in helps[name], name
