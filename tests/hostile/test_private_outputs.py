"""What leaves the process: no connection, no file outside of --out, nothing that others can read."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gradveil.cli import main
from hostile.forged import tree

TINY = ["--data", "digits", "--model", "mlp", "--images", "2", "--attack", "linear", "--metric", "psnr", "--quiet"]
COMMANDS = [
    ["--help"],
    ["--version"],
    ["audit", *TINY, "--defense", "none", "--defense", "prune", "--out", "out/run"],
    ["audit", *TINY, "--defense", "none", "--workers", "2", "--out", "out/workers"],
    ["audit", "--data", "photos", "--data-option", "count=40", "--images", "1", "--model", "lenet",
     "--attack", "dlg:steps=5", "--budget", "quick", "--defense", "none", "--quiet", "--out", "out/photos"],
    ["report", "out/run"],
    ["report", "out/run", "--redact"],
    ["verify", "out/run"],
    ["table", "out/run"],
    ["list", "attacks"],
    ["list", "defenses", "--json"],
    ["bench", "--help"],
    ["bench", "engine", "--images", "1", "--steps", "1"],
]  # fmt: skip
CHILD = """
import json, os, sys
attempts = []
def hook(event, arguments):
    if event.split(".")[0] in ("socket", "urllib", "http", "ftplib", "smtplib") and event != "socket.__new__":
        attempts.append(event + str(arguments)[:80])
        raise ConnectionRefusedError(event)
sys.addaudithook(hook)
from gradveil.cli import main
codes = []
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as left:
        codes.append(left.code)
handles = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
kinds = [os.readlink(handle) for handle in handles if os.path.lexists(handle)]
report = {"attempts": attempts, "codes": codes, "sockets": [kind for kind in kinds if kind.startswith("socket:")]}
print("\\n" + json.dumps(report))
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list]]:
    """Every command once, in one process with a home, a temporary folder and a current folder of its own."""
    home = tmp_path_factory.mktemp("home")
    for name in ("cwd", "tmp"):
        (home / name).mkdir()
    places = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_CACHE_HOME": str(home / "cache")}
    run = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(COMMANDS)],
        cwd=home / "cwd",
        env={**os.environ, **places, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return home, json.loads(run.stdout.splitlines()[-1])


@pytest.mark.more
def test_every_command_ran(session: tuple[Path, dict[str, list]]) -> None:
    assert session[1]["codes"] == [0] * len(COMMANDS)


@pytest.mark.more
def test_nobody_was_called_and_nobody_can_call(session: tuple[Path, dict[str, list]]) -> None:
    assert session[1]["attempts"] == []
    assert session[1]["sockets"] == []


@pytest.mark.more
def test_nothing_is_written_outside_of_out(session: tuple[Path, dict[str, list]]) -> None:
    home = session[0]
    outside = [name for name in tree(home) if name not in ("cwd", "tmp") and not name.startswith("cwd/out")]
    assert outside == []


@pytest.mark.more
def test_everything_is_for_its_owner_alone(session: tuple[Path, dict[str, list]]) -> None:
    written = list((session[0] / "cwd").rglob("*"))
    assert len(written) > 10
    modes = {str(path): stat.S_IMODE(path.stat().st_mode) for path in written}
    expected = {str(path): 0o700 if path.is_dir() else 0o600 for path in written}
    assert modes == expected


CANARIES = [f"canary{k}" for k in range(20)]


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """Folders, files, classes and a model whose names must not be told, and pictures that must not be shown."""
    root = tmp_path / CANARIES[0] / CANARIES[1]
    rng = np.random.default_rng(0)
    for number in range(16):
        place = root / CANARIES[2 + number % 4]
        place.mkdir(parents=True, exist_ok=True)
        pixels = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
        pixels.info["comment"] = CANARIES[6]
        exif = Image.Exif()
        exif[0x010E] = CANARIES[7]  # the description of the picture
        pixels.save(place / f"{CANARIES[8 + number % 8]}-{number}.png", exif=exif)
    model = (
        "from torch import nn\n"
        f"class {CANARIES[16]}(nn.Sequential): ...\n"
        f"def {CANARIES[17]}(classes):\n    return {CANARIES[16]}(nn.Flatten(), nn.Linear(192, classes))\n"
    )
    (tmp_path / f"{CANARIES[18]}.py").write_text(model)
    return root


def test_a_redacted_run_tells_none_of_twenty_canaries(
    clinic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / CANARIES[19]
    out.mkdir()
    monkeypatch.chdir(out)
    what = ["--data", str(clinic), "--model", f"{tmp_path}/{CANARIES[18]}.py:{CANARIES[17]}", "--images", "4"]
    how = ["--attack", "linear", "--metric", "psnr", "--defense", "none", "--out", "out", "--redact"]
    monkeypatch.setattr(sys, "argv", ["gradveil", "audit", *what, *how])
    with pytest.raises(SystemExit, match=r"^0$"):
        main()
    printed, progress = capsys.readouterr()
    page = (out / "out/report.html").read_text()
    for name, text in (("report.html", page), ("standard output", printed)):
        assert [canary for canary in CANARIES if canary in text] == [], name
    assert [canary for canary in CANARIES[2:16] if canary in progress] == []  # progress names the scenario
    assert not re.findall(r"<(?:img|image)\b|data:image", page)
