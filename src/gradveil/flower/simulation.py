"""A Flower simulation as a process of its own: Flower and Ray change the environment and the paths of theirs."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gradveil.core.files import SCRATCH
from gradveil.core.types import Batch
from gradveil.models import MODELS
from gradveil.train.partition import partition
from gradveil.train.settings import Federation

JOB, PICTURES = "job.json", "pictures.safetensors"
PIECES = ("images", "labels", "validation.images", "validation.labels")
PUBLIC = ("public.images", "public.labels")


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings of a simulation; the pictures are in a file of their own."""

    model: str
    options: Mapping[str, Any]
    federation: Federation
    defense: str
    folder: str
    checkpoints: tuple[int, ...] = ()
    last: int | None = None  # round that a privacy budget allows; None: the federation's last
    pictures: str = PICTURES  # beside the settings, or an absolute path

    def identity(self) -> dict[str, Any]:
        """What decides about the rounds."""
        whole = asdict(self)
        return {key: whole[key] for key in ("model", "options", "federation", "defense")}

    def write(self, where: Path, data: Batch, validation: Batch, public: Batch | None = None) -> None:
        tensors = dict(zip(PIECES, (*data, *validation), strict=True))
        tensors |= {} if public is None else dict(zip(PUBLIC, public, strict=True))
        save_file({name: x.detach().cpu().contiguous() for name, x in tensors.items()}, where / self.pictures)
        (where / JOB).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, where: Path) -> Job:
        stored = json.loads((where / JOB).read_text(encoding="utf-8"))
        federation, checkpoints = Federation(**stored.pop("federation")), tuple(stored.pop("checkpoints"))
        return cls(federation=federation, checkpoints=checkpoints, **stored)


@dataclass(frozen=True)
class StoredData:
    """The pictures of each client, read once in every worker and not sent along with every message."""

    file: str
    federation: Federation

    def __call__(self, client: str) -> Batch:
        torch.set_num_threads(1)  # a worker is a core
        images, labels, *_ = read_pictures(self.file, PIECES)
        share = partition(labels, self.federation)[self.federation.names.index(client)]
        return Batch(images[share], labels[share])

    def public(self) -> Batch | None:
        found = read_pictures(self.file, PUBLIC)
        return Batch(*found) if found else None

    def validation(self) -> Batch:
        return Batch(*read_pictures(self.file, PIECES)[2:])


@lru_cache(maxsize=2)
def read_pictures(file: str, names: tuple[str, ...]) -> tuple[Tensor, ...]:
    """Those of the names that the file holds."""
    tensors = load_file(file)
    return tuple(tensors[name] for name in names if name in tensors)


def simulate(where: Path) -> None:
    """Flower's own simulation of the job, on as many workers as there are cores or clients."""
    from flwr.simulation import run_simulation

    from gradveil.flower.client import client_app
    from gradveil.flower.server import server_app

    job = Job.read(where)
    model = partial(MODELS[job.model], **_as_tuples(job.options))
    data = StoredData(str(where / job.pictures), job.federation)
    validation = data.validation()
    server = server_app(
        model,
        job.federation,
        folder=job.folder,
        shape=tuple(validation.images.shape[1:]),  # type: ignore[arg-type]
        classes=validation.labels.shape[1],
        model_name=job.model,
        defense=job.defense,
        validation=data.validation,
        checkpoints=job.checkpoints,
        last=job.last,
    )
    client = client_app(
        model, data, job.federation, job.defense, seed=job.federation.seed, public=data.public(), last=job.last
    )
    workers = max(1, min(job.federation.clients, os.cpu_count() or 1))
    run_simulation(
        server,
        client,
        job.federation.clients,
        backend_config=backend(workers, where / "ray", Path(job.folder) / SCRATCH),
    )  # type: ignore[arg-type]


def backend(workers: int, temporary: Path, spilled: Path) -> dict[str, Any]:
    """Ray on the loopback alone: its sockets where they are removed with the job, what its memory cannot hold below the
    folder of the training."""
    spilled.mkdir(parents=True, exist_ok=True)
    local = {"num_cpus": workers, "_node_ip_address": "127.0.0.1", "_temp_dir": str(temporary)}
    local |= {"object_spilling_directory": str(spilled)}
    return {"init_args": local, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}


def _as_tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows lists only."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}


def end_with(parent: int) -> None:
    """Who asked for the simulation may be killed; then nobody wants it any more, and Ray ends with this process."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    simulate(Path(sys.argv[1]))
