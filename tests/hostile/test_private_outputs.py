"""What leaves the process: no connection, no file outside of --out, nothing that others can read."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from gradveil.cli import app, main
from hostile.forged import tree

NVFLARE = Path(__file__).parents[1] / "nvflare_files" / "stored"
CPU = ["--device", "cpu", "--quiet"]
TINY = ["--data", "digits", "--model", "mlp", "--images", "2", "--attack", "linear", "--metric", "psnr", *CPU]
LODA = "loda:extractor=lenet:untrained,layers=all,c=1,steps=2"
NETWORK = ["--data", "pictures", "--size", "16", "--width", "8", "--epochs", "1", "--batch-size", "8", *CPU]
COMMANDS = [
    ["--help"],
    ["--version"],
    ["audit", *TINY, "--defense", "none", "--defense", "prune", "--out", "out/run"],
    ["audit", *TINY, "--defense", "none", "--workers", "2", "--out", "out/workers"],
    ["audit", "--data", "photos", "--data-option", "count=40", "--images", "1", "--model", "lenet", "--attack",
     "dlg:steps=5", "--budget", "quick", "--defense", "none", "--defense", LODA, *CPU, "--out", "out/photos"],
    ["audit", "--capture", "capture.safetensors", "--data", "photos", "--data-option", "size=16", "--data-option",
     "count=30", "--attack", "dlg:steps=3,restarts=1", "--budget", "quick", *CPU, "--out", "out/captured"],
    ["capture", "show", "capture.safetensors"],
    ["capture", "from-nvflare", str(NVFLARE / "sent.fobs"), "--update", f"site-1={NVFLARE / 'difference.fobs'}",
     "--shape", "1,8,8", "--classes", "3", "--out", "out/round.safetensors"],
    ["capture", "check", "capture.safetensors", "--data", "photos", "--data-option", "size=16", "--data-option",
     "count=30"],
    ["doctor", "--model", "mlp", "--data", "digits", "--defense", "none", "--budget", "quick"],
    ["report", "out/run"],
    ["report", "out/run", "--redact"],
    ["verify", "out/run"],
    ["gate", "out/run"],
    ["sign", "out/run", "--key", "key.pem"],
    ["verify", "out/run", "--key", "key.pem"],
    ["reproduce-cell", "out/run", "--trial", "digits-mlp-b1/none/linear/unaware/c0000/0"],
    ["table", "out/run"],
    ["list", "attacks"],
    ["list", "defenses", "--json"],
    ["check-model", "mlp", "--shape", "1x8x8"],
    ["search", "--data-option", "count=64", "--data-option", "size=16", "--candidates", "4", "--top", "1", "--images",
     "4", "--rounds", "1", "--semi-epochs", "1", "--threshold", "100%", "--confirm", "0", "--workers", "2", *CPU,
     "--folder", "out/search", "--out", "out/policy.json"],
    ["train", "--data-option", "limit=32", "--rounds", "2", "--clients", "2", "--batch-size", "8", "--device", "cpu",
     "--defense", "prune", "--out", "out/training"],
    ["tradeoff", "--data-option", "count=60", "--data-option", "size=8", "--model", "mlp", "--rounds", "1", "--clients",
     "2", "--per-round", "1", "--split", "iid", "--rate", "0.1", "--seeds", "1", "--images", "2", "--stage", "1",
     "--attack", "linear", "--noise", "0.1", "--random-policies", "0", "--match", "0", "--workers", "0", *CPU,
     "--out", "out/tradeoff"],
    ["calibrate", "--data", "digits", "--model", "mlp", "--defense", "gaussian", "--images", "2", "--standins", "1",
     "--lineup", "20", "--named-at-most", "0.8", *CPU, "--out", "out/calibration"],
    ["recommend", "--data-option", "count=60", "--data-option", "size=8", "--model", "mlp", "--defense", "gaussian",
     "--rounds", "1", "--clients", "2", "--per-round", "1", "--split", "iid", "--rate", "0.1", "--seeds", "2",
     "--images", "2", "--lineup", "20", "--standins", "1", "--named-at-most", "0.8", "--attack", "linear", *CPU,
     "--out", "out/advice"],
    ["protect", "pictures", "--defense", LODA, *CPU, "--out", "out/encoded"],
    ["train-extractor", "pictures", "--model", "lenet", "--epochs", "1", *CPU, "--out", "out/extractor.safetensors"],
    ["train-generator", "autoencoder", *NETWORK, "--out", "out/autoencoder.safetensors"],
    ["train-gan", "--data", "pictures", "--size", "16", "--width", "8", "--steps", "1", *CPU, "--out",
     "out/gan.safetensors"],
    ["train-inverter", "--data", "digits", "--model", "mlp", "--gallery", "100", "--images", "2", "--epochs", "1",
     "--hidden", "8", "--sketch", "16", "--copies", "1", *CPU, "--out", "out/inverter.safetensors"],
    ["bench", "--help"],
    ["bench", "engine", "--images", "1", "--steps", "1"],
    ["bench", "strength", "export", "--only", "mlp-*", "--out", "out/exported"],
]  # fmt: skip
FINDS = {"gate": 1, "capture show": 0}  # exit codes other than 0: what was audited here leaks
PREPARE = """
import numpy as np, os
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from PIL import Image
from gradveil.capture import save, simulate
save("capture.safetensors", simulate(options={"size": 16}, labels=True))
key = Ed25519PrivateKey.generate()
pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
open("key.pem", "wb").write(pem)
rng = np.random.default_rng(0)
for number in range(24):
    folder = f"pictures/{number % 2}"
    os.makedirs(folder, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(f"{folder}/{number:02}.png")
os.mkdir("out")
"""
CHILD = """
import json, os, sys
log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(kind, what):
    os.write(log, (json.dumps([kind, what, os.path.realpath(what)]) + "\\n").encode())
def hook(event, arguments):
    if event.split(".")[0] in ("socket", "urllib", "http", "ftplib", "smtplib") and event != "socket.__new__":
        note("network", event + str(arguments)[:80])
        raise ConnectionRefusedError(event)
    if event == "open" and isinstance(arguments[0], (str, bytes)) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        note("write", os.fsdecode(arguments[0]))
    if event in ("os.mkdir", "os.symlink", "os.link"):
        note("write", os.fsdecode(arguments[-3 if event == "os.mkdir" else 1]))
    if event == "os.rename":
        note("write", os.fsdecode(arguments[1]))
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
print("\\n" + json.dumps({"codes": codes, "sockets": [kind for kind in kinds if kind.startswith("socket:")]}))
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list]]:
    """Every command once, in one process with a home, a temporary folder and a current folder of its own."""
    home = tmp_path_factory.mktemp("home")
    for name in ("cwd", "tmp"):
        (home / name).mkdir()
    places = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_CACHE_HOME": str(home / "cache")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCH")}  # torch writes its own
    own: Any = {"cwd": home / "cwd", "env": {**kept, **places, "OMP_NUM_THREADS": "1"}}
    first = "import os; os.umask(0o077); os.environ['TORCHINDUCTOR_CACHE_DIR'] = os.environ['TMPDIR']"
    subprocess.run([sys.executable, "-c", f"{first}\n{PREPARE}"], check=True, **own)
    log = tmp_path_factory.mktemp("log") / "events"
    script = [sys.executable, "-c", CHILD, json.dumps(COMMANDS), str(log)]
    run = subprocess.run(script, capture_output=True, text=True, **own)
    assert run.returncode == 0, run.stderr
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return home, {**json.loads(run.stdout.splitlines()[-1]), "events": events, "errors": run.stderr.splitlines()}


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, such as ("capture", "show")."""
    below = getattr(command, "commands", {})
    for name, one in below.items():
        yield from leaves(one, (*path, name))
    if not below:
        yield path


def test_no_command_is_left_out() -> None:
    every = set(leaves(get_command(app)))
    assert {command for command in every if any(tuple(c[: len(command)]) == command for c in COMMANDS)} == every


@pytest.mark.more
def test_every_command_ran(session: tuple[Path, dict[str, list]]) -> None:
    expected = [FINDS.get(command[0], 0) for command in COMMANDS]
    assert session[1]["codes"] == expected, session[1]["errors"]


@pytest.mark.more
def test_nobody_was_called_and_nobody_can_call(session: tuple[Path, dict[str, list]]) -> None:
    assert [event for event in session[1]["events"] if event[0] == "network"] == []
    assert session[1]["sockets"] == []


# what may lie outside of --out: no picture
KEPT = re.compile(r"cache(/gradveil(/semi-trained(/\w+\.safetensors)?|/encoded(/made(/\w\w(/\w{64})?)?)?)?)?")


@pytest.mark.more
def test_nothing_is_written_outside_of_out(session: tuple[Path, dict[str, list]]) -> None:
    home = session[0]
    given = ("cwd/pictures", "cwd/capture.safetensors", "cwd/key.pem")
    outside = [name for name in tree(home) if name not in ("cwd", "tmp") and not name.startswith(("cwd/out", *given))]
    assert [name for name in outside if not KEPT.fullmatch(name)] == []
    marks = [path for path in (home / "cache/gradveil/encoded").rglob("*") if path.is_file()]
    assert marks
    assert all(path.stat().st_size == 0 for path in marks)


@pytest.mark.more
def test_nothing_was_written_outside_of_out_on_the_way(session: tuple[Path, dict[str, list]]) -> None:
    """Every file that a command or one of its processes opened for writing, and every folder that it made."""
    home, written = session[0], {event[2] for event in session[1]["events"] if event[0] == "write"}
    assert len(written) > 100
    there = {os.path.relpath(path, home) for path in written if not path.startswith(("/dev/", "/proc/"))}
    outside = {re.sub(r"\.[\d-]+\.part$|\.part$", "", path) for path in there if not path.startswith("cwd/out/")}
    strange = {path for path in outside if not KEPT.fullmatch(path)} - {"cwd/out", "tmp"}
    assert strange == set()


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
