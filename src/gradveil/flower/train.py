"""A training with `engine = flower`: the federation as a Flower simulation, with a capture of every round."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError, GradveilError, Interrupted, LockedError, unknown
from gradveil.core.files import private_files, scratch, write_whole
from gradveil.core.hashes import TELLING, differences, hash_tensors
from gradveil.core.types import Batch
from gradveil.defenses import parse_defense
from gradveil.dp.budget import Budget
from gradveil.experiment.parallel.pool import NO_WEB
from gradveil.flower.simulation import PICTURES, Job
from gradveil.models import MODELS, load_weights
from gradveil.train.partition import partition
from gradveil.train.privacy import Stop
from gradveil.train.run import Training
from gradveil.train.settings import Federation
from gradveil.train.state import Trained

LOG, RUN, PRIVACY = "flower.log", "flower.json", "privacy.json"
QUIET = {  # neither tells anybody of the run, looks for updates or installs anything
    **NO_WEB,
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
}
START = "from gradveil.flower.simulation import main; main()"
GRACE = 20.0  # seconds for Flower and Ray to end by themselves


class FlowerError(GradveilError):
    """A simulation that ended before its last round."""

    exit_code = 1


def train(
    model_name: str,
    model_options: Mapping[str, Any],
    data: Batch,
    validation: Batch,
    federation: Federation,
    defense_text: str,
    *,
    folder: str | Path,
    checkpoints: Sequence[int] = (),
    public: Batch | None = None,
    privacy: Budget | None = None,
    stop: Stop | None = None,
) -> Trained:
    """The rounds of the local engine, up to float32 on the wire, played by Flower. Goes on from what `folder` holds."""
    defense = check_simulation(model_name, federation, defense_text)
    from gradveil.flower.defense_mod import bind_defense
    from gradveil.flower.server_files import ServerFiles  # these import Flower, which is known to be there now

    smallest = min(partition(data.labels, federation), key=len)
    bind_defense(defense, Batch(data.images[smallest], data.labels[smallest]), public)  # refuses too few pictures
    shown, folder = folder, Path(folder).resolve()
    with private_files():
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / LOG) as log, scratch(folder) as place, TemporaryDirectory(prefix="gv-") as where:
            # settings and Ray's sockets, whose names have 107 letters at most, in `where`; the pictures in `place`
            place.mkdir()
            job = Job(
                model=model_name,
                options=dict(model_options),
                federation=federation,
                defense=defense_text,
                folder=str(folder),
                checkpoints=tuple(checkpoints),
                last=None if stop is None else stop.round,
                pictures=str(place / PICTURES),
            )
            refuse_other(
                folder / RUN, {**job.identity(), "data_sha256": hash_tensors({"x": data.images, "y": data.labels})}
            )
            if privacy is not None:
                write_whole(folder / PRIVACY, json.dumps(privacy.as_json(), indent=2).encode())
            job.write(Path(where), data, validation, public)
            try:
                _run([sys.executable, "-c", START, where], folder / LOG, log)
            except KeyboardInterrupt as error:
                raise Interrupted(f"finished rounds are kept, go on with `folder = {shown}`") from error
    files, model = ServerFiles(folder), defense.model(MODELS[model_name](**model_options))
    models = files.models()
    load_weights(model, models[max(models)])
    notes = () if stop is None else (str(stop),)
    return Trained(model=model.eval(), curve=files.curve(), checkpoints=models, notes=notes)


def simulate(training: Training) -> Trained:
    """A prepared training, played by Flower."""
    settings, data = training.settings, training.data
    return train(
        settings.model,
        data.model_options,
        data.training,
        data.validation,
        training.federation,
        settings.defense,
        folder=training.folder,
        checkpoints=training.checkpoints,
        public=data.public,
        privacy=training.privacy,
        stop=training.stop,
    )


def refuse_other(path: Path, identity: Mapping[str, Any]) -> None:
    """A folder goes on with the run that it holds, and with no other."""
    here = json.loads(json.dumps(identity))
    if not path.is_file():
        write_whole(path, json.dumps(here, indent=2).encode())
    elif other := differences(json.loads(path.read_text(encoding="utf-8")), here):
        raise ConfigError(f"{path.parent}: holds another run ({'; '.join(other[:TELLING])}), choose another `folder`")


def check_simulation(model_name: str, federation: Federation, defense_text: str) -> Defense:
    """Refuse what cannot run before a process is started."""
    for needed in ("flwr", "ray"):
        if importlib.util.find_spec(needed) is None:
            raise ConfigError(f"flower needs {needed}, which is not installed, install gradveil[flower]", key="engine")
    if model_name not in MODELS:
        raise unknown("model", model_name, MODELS)
    if federation.topology != "central":
        raise ConfigError(f"{federation.topology} has no server, use `engine = local`", key="topology")
    return parse_defense(defense_text)


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The log, for one writer: the child holds the lock too, as long as it lives."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(
                f"{path.parent}: another run is writing to it, wait or choose another `folder`"
            ) from error
        yield file


def _run(command: list[str], log: Path, file: IO[bytes]) -> None:
    """A session of its own, of which nothing is left afterwards, whatever happens."""
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ | QUIET, start_new_session=True
    )
    try:
        code = child.wait()
    finally:
        _end(child)
    if code:
        raise FlowerError(f"flower: the simulation ended with code {code}, {_last_words(log)}; see {log}")


def _end(child: subprocess.Popen) -> None:
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "without a word"
