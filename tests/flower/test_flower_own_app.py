"""A Flower app of the user's own, with a shuffled loader, Adam and its own transform: captured, replayed, audited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import own_app as own
import pytest
from PIL import Image

from gradveil import capture
from gradveil.cli import main
from gradveil.data import load
from gradveil.flower.train import QUIET

pytestmark = [pytest.mark.slow, pytest.mark.flower]
FITTING = ["--data-option", "size=16", "--data-option", "resize=bilinear", "--data-option", "crop=none"]


def write_pictures(root: Path) -> Path:
    """Ten photographs of each of four classes, which are no squares."""
    data = load("photos", size=32, count=80)
    for place, (picture, target) in enumerate(zip(data.images, data.targets, strict=True)):
        label = int(target.argmax())
        if label < own.CLASSES:
            folder = root / data.class_names[label]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = (255 * picture[:, 2:30]).round().byte().permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(folder / f"{place:03}.png")
    return root


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The pictures, and what the server of a real simulation recorded of its second round."""
    place = tmp_path_factory.mktemp("own")
    root = write_pictures(place / "pictures")
    with tempfile.TemporaryDirectory(prefix="gv-", dir="/tmp") as where:  # short, for Ray's sockets
        code = f"import own_app; own_app.main({str(root)!r}, {str(place / 'seen')!r}, {where!r})"
        path = os.pathsep.join([str(Path(own.__file__).parent), *sys.path])  # workers import the app by name
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | QUIET | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return root, place / "seen/round-0002.safetensors"


def settings(root: Path, file: Path) -> list[str]:
    """What the owner knows: the network, the transform, and whose pictures are whose."""
    found = capture.load(file)
    clients = [int(found.metrics[client]["client"]) for client in found.clients]
    rows = [own.PICTURES * client + place for client in clients for place in range(own.PICTURES)]
    return ["--data", str(root), *FITTING, "--model", f"{own.__file__}:Net", "--pictures", ",".join(map(str, rows))]


def run(arguments: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code


def test_it_is_replayed_exactly(seen: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    root, file = seen
    given = ["capture", "check", str(file), *settings(root, file), "--json"]
    assert run([*given, "--normalize", "imagenet"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    (replay,) = (one for one in found if one["topic"] == "replay")
    assert "reproduce the updates" in replay["what"]
    assert run(given) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    what = next(one["what"] for one in found if (one["topic"], one["level"]) == ("replay", "problem"))
    assert "the client normalized with the constants of imagenet" in what


def test_it_is_audited_end_to_end(
    seen: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root, file = seen
    code = run([
        "audit", "--capture", str(file), *settings(root, file), "--normalize", "imagenet", "--defense", "none",
        "--attack", "invertgrad:steps=30,restarts=1", "--budget", "quick", "--out", str(tmp_path / "run"),
    ])  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0, err
    verdict = json.loads((tmp_path / "run/verdict.json").read_text())
    records = [json.loads(line) for line in (tmp_path / "run/journal.jsonl").read_text().splitlines()]
    attacked = [one for one in records if one.get("attack", "").startswith("invertgrad") and one.get("scores")]
    assert verdict
    assert len(attacked) >= own.CLIENTS * own.PICTURES
    assert any("order not known" in note for one in attacked for note in one.get("notes", []))
    assert "not reproduced" not in out
    assert (tmp_path / "run/report.html").exists()
