"""Captured clients with a loss of their own: a plain torch loop replays, and no file that a capture names is run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tasks import FILE, Task, namespace, small_unet, tasks, write_task

from gradveil import data
from gradveil.capture import Capture
from gradveil.capture.document import format_document, parse_document
from gradveil.cli import main
from gradveil.core.errors import ConfigError
from gradveil.core.local_training import LocalTraining
from gradveil.core.own_loss import OwnLoss
from gradveil.core.target import Target

ROWS = "0,1"
TARGET = Target(shape=(3, 8, 8))


def call(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return int(left.value.code or 0)


def write_capture(folder: Path, task: Task, optimizer: str = "sgd") -> list[str]:
    """Two steps of an ordinary training loop on the first two pictures; the options of an audit of it."""
    options = write_task(folder, task)
    pictures = data.load(str(folder / "data.npz"))
    model, loss = small_unet().float(), namespace()["dice_ce"]
    sent = {name: p.clone() for name, p in model.state_dict().items()}
    steps = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](model.parameters(), lr=0.01)
    for _ in range(2):
        steps.zero_grad()
        loss(model(pictures.images[:2]), pictures.targets[:2]).backward()  # type: ignore[operator]
        steps.step()
    training = LocalTraining(steps=2, rate=0.01, optimizer=optimizer, loss=OwnLoss("net.py:dice_ce"))  # type: ignore[arg-type]
    Capture(
        weights=sent,
        updates={"a": {name: sent[name] - p for name, p in model.state_dict().items()}},
        round=0,
        training=training,
        examples={"a": 2},
        shape=(3, 8, 8),
        classes=3,
        normalization=None,
        labels={"a": pictures.targets[:2].argmax(1)},
        target=TARGET,
    ).save(folder / "round.safetensors")
    return [*options[:4], "--capture", str(folder / "round.safetensors"), "--pictures", ROWS, *options[4:]]


@pytest.mark.more
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_plain_loop_is_replayed_and_audited(
    optimizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = write_capture(tmp_path, tasks()["masks"], optimizer)
    file = options.pop(options.index("--capture") + 1)
    options.remove("--capture")
    assert call(["capture", "check", file, *options]) == 0
    assert "reproduce the updates" in capsys.readouterr().out
    more = ["--attack", "lbfgs-cosine:steps=60,restarts=1", "--lineup", "6", "--budget", "quick", "--quiet", "--yes"]
    assert call(["audit", "--capture", file, *options, *more, "--out", str(tmp_path / "run")]) == 0
    records = [json.loads(line) for line in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    assert {one["status"] for one in records} == {"ok"}
    assert not any("truth-not-replayed" in one["flags"] for one in records)


def test_no_file_that_a_capture_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = write_capture(tmp_path, tasks()["masks"])
    monkeypatch.chdir(tmp_path)  # where net.py lies
    Path("net.py").write_text(f"open('mark', 'w').close()\n{FILE}")
    Path("plain.py").write_text(FILE)
    bare = [one.replace("net.py", "plain.py") for one in options[:-2]]
    assert call(["audit", *bare, "--out", "run"]) == 2
    assert "a file that is never taken from a capture, give it as --loss path/to/net.py:dice_ce" in (
        capsys.readouterr().err
    )
    assert call(["audit", *bare, "--loss", "plain.py:mse", "--out", "run"]) == 2
    assert "the clients' is 'net.py:dice_ce'" in capsys.readouterr().err
    assert not Path("mark").exists()
    assert not Path("run").exists()


def document(**changes: object) -> str:
    plain = Capture(
        weights={}, updates={}, round=0, training=LocalTraining(loss=OwnLoss("some/where/net.py:f")), examples={"a": 1},
        shape=(3, 8, 8), classes=3, normalization=None, target=TARGET,
    )  # fmt: skip
    return json.dumps({**json.loads(format_document(plain)), **changes})


def test_the_document_names_loss_and_target() -> None:
    found = parse_document(document(), "x")
    assert (found["training"].loss, found["target"]) == ("net.py:f", TARGET)
    assert found["training"].loss.function is None
    plain = parse_document(document(target=None), "x")
    assert plain["target"] is None


@pytest.mark.parametrize("loss", ["../net.py:f", "/etc/net.py:f", "net.py", "net.py:f g", "net.py:f\n", "a" * 300, 3])
def test_a_loss_that_is_no_name_is_refused(loss: object) -> None:
    training = {**json.loads(document())["training"], "loss": loss}
    with pytest.raises(ConfigError, match=r"training\.loss: expected one of"):
        parse_document(document(training=training), "x")


@pytest.mark.parametrize(
    "target",
    [
        3,
        {},
        {"shape": [3, 8, 8], "kind": "odd"},
        {"shape": [4, 8, 8], "kind": "classes"},
        {"shape": [3, 9, 8], "kind": "classes"},
        {"shape": [3, 10**9, 10**9], "kind": "classes"},
        {"shape": "abc", "kind": "classes"},
        {"shape": [3], "kind": ["classes"]},
    ],
)
def test_a_target_that_fits_no_picture_is_refused(target: object) -> None:
    with pytest.raises(ConfigError, match="target"):
        parse_document(document(target=target), "x")


def test_masks_of_another_size_are_refused(tmp_path: Path) -> None:
    write_capture(tmp_path, tasks()["masks"])
    found = Capture.load(tmp_path / "round.safetensors")
    assert found.labels["a"].shape == (2, 8, 8)
    for wrong in (torch.zeros(2, 7, 8).long(), torch.zeros(2, 3, 8)):
        with pytest.raises(ConfigError, match="expected I64 of"):
            replace(found, labels={"a": wrong}).save(tmp_path / "wrong.safetensors")
    replace(found, labels={"a": torch.full((2, 8, 8), 3)}).save(tmp_path / "wrong.safetensors")
    with pytest.raises(ConfigError, match="3 is no class"):
        Capture.load(tmp_path / "wrong.safetensors")
    assert np.array_equal(found.answer.from_stored(found.labels["a"]).argmax(1).numpy(), tasks()["masks"].labels[:2])
