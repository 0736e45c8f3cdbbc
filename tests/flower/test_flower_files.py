"""Where a simulated federation leaves private pictures: below --out, and after a kill nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradveil import data
from gradveil.core.files import SCRATCH

pytestmark = [pytest.mark.slow, pytest.mark.flower]
COMMAND = ["train", "--engine", "flower", "--data", "digits", "--data-option", "size=16", "--data-option", "limit=24",
           "--model", "mlp", "--rounds", "40", "--clients", "2", "--batch-size", "4", "--device", "cpu"]  # fmt: skip
PATIENCE = 240.0


@pytest.fixture
def places() -> Iterator[Path]:
    """A home and a temporary folder of its own; with short names, for Ray's sockets."""
    place = Path(tempfile.mkdtemp(prefix="gv", dir="/tmp"))
    for name in ("home", "tmp"):
        (place / name).mkdir()
    yield place
    shutil.rmtree(place, ignore_errors=True)


def files_with(pixels: bytes, place: Path) -> set[str]:
    """Files in which a picture lies as it is in memory."""
    found = set()
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink():
            try:
                found |= {str(path.relative_to(place))} if pixels in path.read_bytes() else set()
            except OSError:
                continue
    return found


def test_a_kill_leaves_no_picture_outside_and_the_next_run_removes_them(places: Path) -> None:
    pixels = data.load("digits", size=16, limit=24).images[0].contiguous().numpy().tobytes()
    own = {"HOME": str(places / "home"), "TMPDIR": str(places / "tmp"), "XDG_CACHE_HOME": str(places / "home/cache")}
    environment = {**os.environ, **own, "FLWR_HOME": str(places / "home/flwr")}
    start = [sys.executable, "-m", "gradveil", *COMMAND, "--out", str(places / "out")]
    child = subprocess.Popen(
        start, env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + PATIENCE
    while not list((places / "out").glob("model-*.safetensors")) and child.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert child.poll() is None
    during = files_with(pixels, places)
    child.kill()
    child.wait()
    after = files_with(pixels, places)
    assert during
    assert {Path(name).parts[:2] for name in during | after} == {("out", SCRATCH)}
    while any(str(places) in line for line in command_lines()) and time.monotonic() < end:
        time.sleep(0.1)  # Ray ends with its driver
    assert subprocess.run(start, env=environment, capture_output=True).returncode == 0
    assert files_with(pixels, places) == set()
    assert not (places / "out" / SCRATCH).exists()


def command_lines() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid():
                yield (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue


GUARD = """
import ipaddress, os, sys
def is_address(name):
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False
def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        name = address[0] if isinstance(address, tuple) else address
        name = name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")
        local = name.startswith(("/", chr(0)))
        local |= event.startswith("socket.get") and is_address(name)  # nobody is asked
        if not local and name not in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", os.uname().nodename):
            with open(os.environ["GUARD_LOG"], "a") as log:
                log.write(f"{event} {name} {sys.argv[:1]}\\n")
sys.addaudithook(hook)
with open(os.environ["GUARD_LOG"] + ".started", "a") as log:
    log.write("x")
"""


@pytest.mark.parametrize("command", ["flower", "ray"])
def test_no_process_of_a_cluster_of_ours_calls_anybody(command: str, places: Path) -> None:
    """Every Python process of Flower's and Ray's loads the guard; loopback is allowed."""
    (places / "guard").mkdir()
    (places / "guard/sitecustomize.py").write_text(GUARD)
    own = {"HOME": str(places / "home"), "TMPDIR": str(places / "tmp"), "GUARD_LOG": str(places / "log")}
    paths = os.pathsep.join([str(places / "guard"), os.environ.get("PYTHONPATH", "")])
    short = [*COMMAND, "--rounds", "2"]
    audit = ["audit", "--data", "digits", "--model", "mlp", "--images", "2", "--attack", "linear", "--ray", "local"]
    start = [sys.executable, "-m", "gradveil", *(short if command == "flower" else audit), "--out", str(places / "out")]
    done = subprocess.run(start, env={**os.environ, **own, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len((places / "log.started").read_text()) > 1
    log = places / "log"
    assert not log.exists(), log.read_text()
