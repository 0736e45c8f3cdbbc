"""Flower for real: a simulation on Ray, and a deployment on the loopback with TLS and node authentication.

Minutes, and many processes: `make test-flower`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from flower_toys import Nodes, context, identity

import gradveil.flower
from gradveil import capture, data
from gradveil.core.defense import Defense
from gradveil.core.types import Batch
from gradveil.flower.curious_server import read_rounds
from gradveil.flower.server import FlowerServer
from gradveil.flower.server_files import ServerFiles
from gradveil.flower.simulation import Job
from gradveil.flower.train import QUIET, START
from gradveil.flower.train import train as train_by_flower
from gradveil.models import MODELS
from gradveil.train.federated import train_federation as train_here
from gradveil.train.partition import partition
from gradveil.train.settings import Federation
from gradveil.train.state import Trained

pytestmark = [pytest.mark.slow, pytest.mark.flower]

EXAMPLE = Path(__file__).parents[2] / "examples/flower"
BIN = Path(sys.executable).parent
PATIENCE = 240.0  # for one thing to happen, on a machine that is busy with others


def until(true: Callable[[], object], what: str, patience: float = PATIENCE, pause: float = 0.1) -> None:
    end = time.monotonic() + patience
    while not true():
        if time.monotonic() > end:
            pytest.fail(f"not within {patience:g} s: {what}")
        time.sleep(pause)


def digits(count: int = 4, **options) -> Batch:
    found = data.load("digits", size=16, **options)
    return Batch(found.images[:count], found.targets[:count])


def options() -> dict:
    found = data.load("digits", size=16, limit=1)
    return {"classes": 10, "shape": found.shape, "mean": found.mean, "std": found.std}


def processes_naming(text: str) -> list[str]:
    """Command lines of live processes in which `text` occurs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(folder.name) != os.getpid():
            found.append(line)
    return found


def audited(file: Path, rows: list[int], out: Path) -> dict:
    """The verdict of `gradveil audit --capture`, closed form only."""
    command = [str(BIN / "gradveil"), "audit", "--capture", str(file), "--data", "digits", "--data-option", "size=16"]
    command += ["--pictures", ",".join(map(str, rows)), "--attack", "linear", "--out", str(out), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((out / "verdict.json").read_text())


SIMULATED = Federation(clients=4, rounds=12, method="fedsgd", momentum=0.9, batch_size=1, rate=0.1)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, Path, int]:
    """A simulation that was killed after some round, server and clients, and went on: model, folder, that round."""
    folder = tmp_path_factory.mktemp("simulated")
    files = ServerFiles(folder)
    with tempfile.TemporaryDirectory(prefix="gv-") as where:
        report = {"model": "mlp", "options": options(), "federation": SIMULATED, "defense": "none"}
        Job(folder=str(folder), **report).write(Path(where), digits(), digits(50, split="train"))
        child = subprocess.Popen(
            [sys.executable, "-c", START, where], env=os.environ | QUIET, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(lambda: files.models() or child.poll() is not None, "the first round", pause=0.005)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        until(lambda: not processes_naming(where), "Ray has ended with its driver", 60)
    killed_at = max(files.models())
    pictures = digits(), digits(50, split="train")
    return train_by_flower("mlp", options(), *pictures, SIMULATED, "none", folder=folder), folder, killed_at


def test_a_simulation_killed_between_rounds_goes_on_to_the_same_weights(simulated, tmp_path: Path) -> None:
    trained, folder, killed_at = simulated
    assert 1 <= killed_at < SIMULATED.rounds
    for name, weight in undisturbed(SIMULATED, tmp_path).items():
        torch.testing.assert_close(trained.model.state_dict()[name], weight, atol=1e-6, rtol=1e-6)
    assert [one.round for one in trained.curve] == list(range(1, 13))
    assert {line["round"] for line in read_rounds(folder)} == set(range(1, 13))


def test_a_simulation_ends_where_the_local_engine_does(simulated) -> None:
    trained, *_ = simulated
    here = train_here(MODELS["mlp"](**options()), digits(), digits(50, split="train"), SIMULATED, Defense())
    for name, weight in here.model.state_dict().items():
        torch.testing.assert_close(trained.model.state_dict()[name], weight, atol=1e-5, rtol=1e-5)
    assert [one.accuracy for one in trained.curve] == pytest.approx([one.accuracy for one in here.curve], abs=0.021)


def test_a_simulation_leaves_no_process_behind(simulated) -> None:
    _, folder, _ = simulated
    assert "Traceback" not in (folder / "flower.log").read_text(errors="replace")
    until(lambda: not processes_naming(f"{tempfile.gettempdir()}/gv-"), "Ray has ended", 30)


def test_what_a_simulation_captured_leaks(simulated, tmp_path: Path) -> None:
    _, folder, _ = simulated
    file = folder / "round-0001.safetensors"
    seen = capture.load(file)
    shares = partition(digits().labels, SIMULATED)
    rows = [int(shares[int(seen.metrics[name]["client"])][0]) for name in seen.clients]
    verdict = audited(file, rows, tmp_path / "run")
    assert verdict["verdict"] == "leaks"


def undisturbed(federation: Federation, folder: Path) -> dict[str, torch.Tensor]:
    """The same apps without a process."""
    identity()
    shares, model = partition(digits().labels, federation), partial(MODELS["mlp"], **options())

    def of(client: str) -> Batch:
        own = shares[federation.names.index(client)]
        return Batch(digits().images[own], digits().labels[own])

    app = gradveil.flower.client_app(model, of, federation, seed=federation.seed)
    nodes = Nodes({k: (lambda m, k=k: app(m, context(k, k))) for k in range(federation.clients)})
    FlowerServer(model=model, federation=federation, folder=folder, shape=(1, 16, 16), classes=10).main(
        nodes, context()
    )  # type: ignore[arg-type]
    end = model()
    ServerFiles(folder).resume(end, momentum=True)
    return end.state_dict()


class Lab:
    """The example's deployment: started and stopped by its own scripts."""

    def __init__(self, folder: Path, defense: str) -> None:
        self.folder, self.seen, self.port = folder, folder / "seen", _free_ports(110)
        self.runs: list[subprocess.Popen] = []
        self.environment = os.environ | {
            "LAB": str(folder), "PORT": str(self.port), "NODES": "4", "GRADVEIL_DEFENSE": defense,
            "FLWR_HOME": str(folder / "flwr"), "PATH": f"{BIN}:{os.environ['PATH']}", **QUIET,
        }  # fmt: skip

    def script(self, name: str) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [EXAMPLE / name], env=self.environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        return done

    def pid(self, name: str) -> int:
        return int((self.folder / "pids" / name).read_text())

    def run(self, **config: object) -> None:
        report = " ".join(f"{key}={json.dumps(value)}" for key, value in {"folder": str(self.seen), **config}.items())
        command = [BIN / "flwr", "run", EXAMPLE / "app", "lab", "--stream", "-c", report]
        with (self.folder / "run.log").open("ab") as log:
            self.runs.append(
                subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
            )

    def stop_watching(self) -> None:
        """Ends `flwr run --stream`, which only shows the log; the run itself goes on."""
        for run in self.runs:
            run.kill()
            run.wait()

    def server_app(self) -> list[int]:
        """Process ids of the ServerApp."""
        lines = {int(p.name): _command(p) for p in Path("/proc").glob("[0-9]*")}
        return [pid for pid, line in lines.items() if "flwr-serverapp" in line and str(self.port) in line]


def _command(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _free_ports(count: int) -> int:
    """The first of a range in which the lab's ports are free now."""
    for first in range(21000, 32000, count):
        ports = (first, *range(first + 100, first + 104))
        if all(_is_free(port) for port in ports):
            return first
    pytest.skip("no free ports on the loopback")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    if not (shutil.which("openssl") and shutil.which("ssh-keygen") and shutil.which("setsid")):
        pytest.skip("openssl, ssh-keygen or setsid is not here")
    lab = Lab(tmp_path / "lab", "gaussian:scale=0.05")
    lab.script("start.sh")
    yield lab
    lab.stop_watching()
    lab.script("stop.sh")
    until(lambda: not processes_naming(f":{lab.port}"), "Flower has ended", 60)
    assert not (lab.folder / "keys").exists()


def test_a_deployment_with_a_killed_client_and_a_killed_server(lab: Lab, tmp_path: Path) -> None:
    assert_keys_are_private(lab)
    assert_tls(lab)
    assert_strangers_are_refused(lab)
    files = ServerFiles(lab.seen)
    lab.run(**{"num-server-rounds": 3, "round-timeout": 180.0, "defense": "gaussian:scale=0.05"})
    until(lambda: 1 in files.models(), "round 1")
    os.killpg(lab.pid("node3"), signal.SIGKILL)  # a client in round 2
    until(lambda: 2 in files.models(), "round 2 without the client that was killed")
    for pid in lab.server_app():
        os.kill(pid, signal.SIGKILL)
    lab.stop_watching()
    assert max(files.models()) == 2
    lab.run(**{"num-server-rounds": 3, "round-timeout": 180.0, "defense": "gaussian:scale=0.05"})
    until(lambda: 3 in files.models(), "round 3 after the restart")
    assert_rounds(lab)
    verdicts = {name: audited(lab.seen / name, rows_of(lab.seen / name), tmp_path / name) for name in captures(lab)[:1]}
    assert verdicts["round-0001.safetensors"]["verdict"] != "leaks"


def assert_keys_are_private(lab: Lab) -> None:
    modes = {path.stat().st_mode & 0o777 for path in (lab.folder / "keys").iterdir()}
    assert modes == {0o600}


def assert_tls(lab: Lab) -> None:
    """The certificate is the lab's own, and nobody else's would do."""
    trusted = ssl.create_default_context(cafile=str(lab.folder / "keys/ca.crt"))
    with (
        socket.create_connection(("127.0.0.1", lab.port)) as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        assert wrapped.version() in ("TLSv1.2", "TLSv1.3")
    with socket.create_connection(("127.0.0.1", lab.port)) as plain, pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(plain, server_hostname="127.0.0.1")


def assert_strangers_are_refused(lab: Lab) -> None:
    keys = lab.folder / "keys"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", keys / "stranger"], check=True)
    command = [BIN / "flower-supernode", "--superlink", f"127.0.0.1:{lab.port}", "--port", str(lab.port + 109)]
    command += ["--root-certificates", keys / "ca.crt", "--auth-supernode-private-key", keys / "stranger"]
    log = lab.folder / "logs/stranger.log"
    with log.open("wb") as file:  # a pipe would be held open by what the node starts, until the node is waited for
        node = subprocess.Popen(command, env=lab.environment, stdout=file, stderr=file, start_new_session=True)
        assert node.wait(PATIENCE) != 0
    assert "Failed to activate SuperNode" in log.read_text(errors="replace")


def assert_rounds(lab: Lab) -> None:
    """Who took part in which round is on disk; nobody is missing without a reason."""
    rounds = {line["round"]: line for line in read_rounds(lab.seen)}
    assert sorted(rounds) == [1, 2, 3]
    assert [len(rounds[n]["kept"]) for n in (1, 2, 3)] == [4, 3, 3], rounds
    assert set(rounds[2]["left_out"]) == set(rounds[1]["kept"]) - set(rounds[2]["kept"])
    assert all(not line["void"] for line in rounds.values())
    for name in captures(lab):
        seen = capture.load(lab.seen / name)
        assert set(seen.clients) == set(rounds[seen.round]["kept"])
        assert seen.defense == "gaussian:scale=0.05"


def captures(lab: Lab) -> list[str]:
    return sorted(path.name for path in lab.seen.glob("round-*.safetensors"))


def rows_of(file: Path) -> list[int]:
    seen = capture.load(file)
    return [int(seen.metrics[name]["client"]) for name in seen.clients]
