"""Encode a whole data set offline, part by part: what is in the journal is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from gradveil.config.resolve import resolve
from gradveil.config.schema import AuditConfig
from gradveil.core.choice import parse_choice
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.files import private_files, sync_folder, write_whole
from gradveil.core.hashes import hash_tensors, own_version, sha256
from gradveil.core.preset import fact_of
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.base import Dataset, check_amount
from gradveil.data.encoded import ARCHIVE, KIND, MANIFEST, PARTS, SHEET, found_in, refuse_encoded, write_archive
from gradveil.defenses import DEFENSES
from gradveil.defenses.loda.starts import hash_of
from gradveil.experiment.folder import JOURNAL, RunFolder
from gradveil.experiment.journal import Journal
from gradveil.experiment.progress import Progress, Silent
from gradveil.experiment.provenance import device_name, now
from gradveil.experiment.record import Record
from gradveil.train.data import load_training_part
from gradveil.transforms.picture import picture_grid

ON_A_CPU, ON_A_GPU = 64, 2048  # pictures of a part: what a kill can cost
SHOWN = 8  # on the sheet
CPU = Compute()


def protect(
    data: str | Dataset,
    defense: str,
    folder: str | Path,
    *,
    data_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Encode a data set picture by picture, before any training; returns the manifest.

    Args:
        data: Pictures: a name in `DATASETS`, a folder, a file, or a loaded data set. Of data with a part to train on
            that part is encoded, unless `data_options` name another.
        defense: What changes every picture, as `NAME[:k=v,...]`; see `Defense.one_by_one`.
        folder: Folder of encoded.npz, manifest.json and before-after.png. An interrupted one is continued.
        data_options: Options of the data set, such as `{"limit": 100}`.
        seed: Seed of what the defense draws.
        compute: Device and precision.
        progress: What is called as pictures are encoded (default: nothing).
    """
    choice = parse_choice(defense, "defense", DEFENSES)
    checked = resolve(AuditConfig(defense={choice.name: choice}), lambda key: key.removeprefix("defense."))
    settings = checked.defense[choice.name].options
    if not isinstance(data, Dataset):
        refuse_encoded(data)
        data = load_training_part(data, data_options or {})
    job = Protection(
        dataset=data,
        defense=DEFENSES[choice.name](**settings),
        settings={"name": choice.name, **settings},
        seed=seed,
    )
    return encode_data_set(job, Path(folder), compute, progress)


class ProtectionFolder(RunFolder):
    """A folder of encodings: a manifest in the place of config and provenance."""

    results = "parts"


@dataclass(frozen=True, kw_only=True)
class Protection:
    """A data set, and the defense that changes every picture of it alone."""

    dataset: Dataset
    defense: Defense
    settings: Mapping[str, Any]  # of the defense, by name, as in the manifest
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.defense.one_by_one:
            able = ", ".join(name for name, row in DEFENSES.items() if fact_of(row, "one_by_one", False))
            raise ConfigError(
                f"{self.settings['name']} does not change pictures one by one, take one of {able}; "
                "an audit runs every defense",
                key="defense",
            )
        self.defense.check(torch.nn.Identity())
        self.defense.check_pictures(self.dataset.images)
        check_amount(ARCHIVE, (len(self.dataset), *self.dataset.shape))

    def encode(self, pictures: Tensor) -> Tensor:
        """Whatever is drawn belongs to the picture, so neither its place nor its neighbors matter."""
        streams = [Seed(self.seed).at("protect", hash_of(picture)).rng() for picture in pictures]
        fed = self.defense.data(Batch(pictures, torch.ones(len(pictures), 1).to(pictures)), streams[0])
        if self.defense.acts_at("batch"):
            fed = self.defense.batches(fed, [1] * len(pictures), streams)
        return fed.images

    def identity(self, precision: str) -> dict[str, Any]:
        """What a folder must agree in to go on in it."""
        data = {"images": self.dataset.images, "targets": self.dataset.targets}
        return {
            "defense": dict(self.settings),
            "seed": self.seed,
            "precision": precision,
            "data": {"name": self.dataset.name, "pictures": len(self.dataset), "sha256": hash_tensors(data)},
        }


def encode_data_set(
    job: Protection, folder: Path, compute: Compute, progress: Progress | None = None
) -> dict[str, Any]:
    """Encode what is missing and write the archive; returns the manifest. A folder that is done is left as it is."""
    identity = json.loads(json.dumps(job.identity(compute.precision)))
    stored = found_in(folder, identity)
    if stored.get("finished"):
        return _check_archive(folder, stored)
    with ProtectionFolder(folder).interruptible(), private_files():
        (folder / PARTS).mkdir(parents=True, exist_ok=True)
        with Journal(folder / JOURNAL) as journal, compute.active():
            manifest = stored or new_manifest(identity, compute)
            write_whole(folder / MANIFEST, _to_json(manifest))
            _encode_parts(job, folder, journal, manifest["part"], compute, progress or Silent())
            return _finish(job, folder, manifest)


def _before_and_after(before: Tensor, after: Tensor) -> bytes:
    """Pictures above their encodings."""
    return picture_grid(torch.cat([before, after]), columns=len(before), gap=4, side=96)


def new_manifest(identity: Mapping[str, Any], compute: Compute) -> dict[str, Any]:
    return {
        "kind": KIND,
        "schema": 1,
        **identity,
        "part": ON_A_GPU if compute.device.startswith("cuda") else ON_A_CPU,
        "gradveil": own_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device_name(compute.device),
        "started": now(),
        "finished": None,
    }


def _to_json(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2) + "\n").encode()


def _check_archive(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    archive = folder / ARCHIVE
    if not archive.is_file() or archive.stat().st_size != manifest["bytes"]:
        raise ConfigError(f"{archive}: has another size than the manifest says, restore it or choose another `folder`")
    _clear(folder)
    return manifest


def _encode_parts(
    job: Protection, folder: Path, journal: Journal, size: int, compute: Compute, progress: Progress
) -> None:
    images = job.dataset.images
    done = {record.key: record for record in journal.records}
    progress.begin(1)
    progress.start(f"{job.settings['name']} on {job.dataset.name}", len(images))
    for first in range(0, len(images), size):
        part = images[first : first + size]
        key = sha256("".join(map(hash_of, part)).encode())
        if not _is_there(folder, done.get(key)):
            journal.append(_encode_part(job, folder, key, first, part.to(compute.device)))
        progress.step(min(first + size, len(images)), len(images))
    progress.done(len(images), 0)
    progress.end()


def _is_there(folder: Path, record: Record | None) -> bool:
    """On disk, byte for byte."""
    if record is None or not (path := folder / PARTS / record.images).is_file():
        return False
    return sha256(path.read_bytes()) == record.notes[0]


def _encode_part(job: Protection, folder: Path, key: str, first: int, pictures: Tensor) -> Record:
    """The part first, its line in the journal then."""
    start = time.monotonic()
    content = save({"images": job.encode(pictures).float().cpu().contiguous()})
    name = name_of(first)
    write_whole(folder / PARTS / name, content)
    return Record(
        key=key,
        status="ok",
        scenario="protect",
        defense=job.settings["name"],
        attack="",
        attacker="unaware",
        client=f"{first}-{first + len(pictures)}",
        example=first,
        seed=job.seed,
        seconds=time.monotonic() - start,
        backend=pictures.device.type,
        notes=(sha256(content),),
        images=name,
    )


def name_of(first: int) -> str:
    return f"{first:09d}.safetensors"


def _parts(folder: Path, count: int, size: int) -> Iterator[np.ndarray]:
    for first in range(0, count, size):
        yield load((folder / PARTS / name_of(first)).read_bytes())["images"].numpy()


def _finish(job: Protection, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Archive, sheet, and last the manifest that says so; the parts are then no longer needed."""
    archive, count = folder / ARCHIVE, len(job.dataset)
    part = archive.with_name(f"{ARCHIVE}.part")
    write_archive(part, _parts(folder, count, manifest["part"]), job.dataset, job.settings["name"])
    os.replace(part, archive)
    sync_folder(folder)
    encoded = torch.from_numpy(next(_parts(folder, count, manifest["part"])))[:SHOWN]
    write_whole(folder / SHEET, _before_and_after(job.dataset.images[:SHOWN], encoded))
    manifest = manifest | {"finished": now(), "bytes": archive.stat().st_size, "archive_sha256": _hash_file(archive)}
    write_whole(folder / MANIFEST, _to_json(manifest))
    _clear(folder)
    return manifest


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _clear(folder: Path) -> None:
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    (folder / JOURNAL).unlink(missing_ok=True)
