"""Encode a whole data set offline, part by part: what is in the journal is not done again."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from gradveil.config.resolve import resolve
from gradveil.config.schema import AuditConfig
from gradveil.core.choice import parse_choice
from gradveil.core.compute import Compute
from gradveil.core.defense import Defense
from gradveil.core.errors import ConfigError
from gradveil.core.files import write_whole
from gradveil.core.hashes import hash_tensors, own_version, sha256
from gradveil.core.preset import fact_of
from gradveil.core.seeds import Seed
from gradveil.core.types import Batch
from gradveil.data.base import Dataset, check_amount
from gradveil.data.encoded import ARCHIVE, SHEET, read_manifest, refuse_encoded
from gradveil.defenses import DEFENSES
from gradveil.defenses.loda.starts import hash_of
from gradveil.experiment.experiment import Experiment, run
from gradveil.experiment.folder import RunFolder
from gradveil.experiment.parallel.pool import Pool
from gradveil.experiment.progress import Progress
from gradveil.experiment.provenance import device_name, now
from gradveil.experiment.record import Record
from gradveil.experiment.runner import Runner
from gradveil.protect.folder import ProtectionFolder, name_of
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
        compute: Device and precision; `workers` processes or a Ray cluster encode the parts.
        progress: What is called as pictures are encoded (default: nothing).
    """
    choice = parse_choice(defense, "defense", DEFENSES)
    checked = resolve(AuditConfig(defense={choice.name: choice}), lambda key: key.removeprefix("defense."))
    settings = checked.defense[choice.name].options
    if not isinstance(data, Dataset):
        refuse_encoded(data)
        data = load_training_part(data, data_options or {})
    protection = Protection(
        dataset=data,
        defense=DEFENSES[choice.name](**settings),
        settings={"name": choice.name, **settings},
        seed=seed,
    )
    return read_manifest(run(protection, folder, compute, progress).parent)


class Part(NamedTuple):
    """Pictures that are encoded together; the key is their place and their content."""

    key: str
    first: int
    count: int


class Encoded(NamedTuple):
    """A part as the content of its file, and its line of the journal."""

    content: bytes
    record: Record


@dataclass(kw_only=True, eq=False)
class Protection(Experiment[Path]):
    """A data set and the defense that changes every picture of it alone, on the way that all experiments go.

    The outcome is the archive.
    """

    folder_type: ClassVar[type[RunFolder]] = ProtectionFolder

    dataset: Dataset
    defense: Defense
    settings: Mapping[str, Any]  # of the defense, by name, as in the manifest
    seed: int = 0
    compute: Compute = field(init=False, default=CPU)

    def pool(self, compute: Compute) -> Pool:
        return Pool.of(compute, all_threads=True)

    def prepare(self, home: RunFolder, compute: Compute, progress: Progress) -> None:
        self.compute = compute
        if not self.defense.one_by_one:
            able = ", ".join(name for name, row in DEFENSES.items() if fact_of(row, "one_by_one", False))
            raise ConfigError(
                f"{self.settings['name']} does not change pictures one by one, take one of {able}; "
                "an audit runs every defense",
                key="defense",
            )
        self.pool(compute).check(compute.device)
        self.defense.check(torch.nn.Identity())
        self.defense.check_pictures(self.dataset.images)
        check_amount(ARCHIVE, (len(self.dataset), *self.dataset.shape))

    def to_tables(self) -> Mapping[str, Any]:
        """What a folder must agree in to go on in it."""
        data = {"images": self.dataset.images, "targets": self.dataset.targets}
        return {
            "defense": dict(self.settings),
            "seed": self.seed,
            "precision": self.compute.precision,
            "data": {"name": self.dataset.name, "pictures": len(self.dataset), "sha256": hash_tensors(data)},
        }

    def origin(self, config: str, compute: Compute) -> Mapping[str, Any]:
        return {
            "part": ON_A_GPU if compute.device.startswith("cuda") else ON_A_CPU,
            "gradveil": own_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": device_name(compute.device),
            "started": now(),
            "finished": None,
        }

    def load_finished(self, home: RunFolder) -> Path | None:
        """A folder that is done is left as it is."""
        if not home.read_provenance().get("finished"):
            return None
        folder = ProtectionFolder(home.path)
        folder.check_archive()
        folder.clear()
        return home.path / ARCHIVE

    def play(self, runner: Runner) -> Path:
        home = ProtectionFolder(runner.home.path)
        size = home.read_provenance()["part"]
        runner.progress.begin(1)
        runner.progress.start(f"{self.settings['name']} on {self.dataset.name}", len(self.dataset))
        self.encode_parts(runner, home, _parts_of(self.dataset.images, size))
        runner.progress.done(len(self.dataset), 0)
        self.put_together(home, size)
        return home.path / ARCHIVE

    def encode_parts(self, runner: Runner, home: ProtectionFolder, parts: Sequence[Part]) -> None:
        """What is missing: the file of a part first, its line in the journal then."""
        runner.forget([key for key, record in runner.done.items() if not home.has_part(record)])
        missing = [part for part in parts if not runner.is_done([part.key])]
        ready = len(self.dataset) - sum(part.count for part in missing)
        for part, (content, record) in runner.each(self.encode_part, missing):
            runner.keep([record], partial(home.save_part, record.images, content))
            ready += part.count
            runner.progress.step(ready, len(self.dataset))

    def encode_part(self, part: Part) -> Encoded:
        start = time.monotonic()
        pictures = self.dataset.images[part.first : part.first + part.count].to(self.compute.device)
        content = save({"images": self.encode(pictures).float().cpu().contiguous()})
        record = Record(
            key=part.key,
            status="ok",
            scenario="protect",
            defense=self.settings["name"],
            attack="",
            attacker="unaware",
            client=f"{part.first}-{part.first + part.count}",
            example=part.first,
            seed=self.seed,
            seconds=time.monotonic() - start,
            backend=pictures.device.type,
            notes=(sha256(content),),
            images=name_of(part.first),
        )
        return Encoded(content, record)

    def encode(self, pictures: Tensor) -> Tensor:
        """Whatever is drawn belongs to the picture, so neither its place nor its neighbors matter."""
        streams = [Seed(self.seed).at("protect", hash_of(picture)).rng() for picture in pictures]
        fed = self.defense.data(Batch(pictures, torch.ones(len(pictures), 1).to(pictures)), streams[0])
        if self.defense.acts_at("batch"):
            fed = self.defense.batches(fed, [1] * len(pictures), streams)
        return fed.images

    def put_together(self, home: ProtectionFolder, size: int) -> None:
        """The archive, and the sheet of the first pictures above their encodings."""
        home.write_archive(self.dataset, size, self.settings["name"])
        before, after = self.dataset.images[:SHOWN], home.load_part(0)[:SHOWN]
        sheet = picture_grid(torch.cat([before, after]), columns=len(before), gap=4, side=96)
        write_whole(home.path / SHEET, sheet)


def _parts_of(images: Tensor, size: int) -> list[Part]:
    parts = {first: images[first : first + size] for first in range(0, len(images), size)}
    return [Part(_key(first, pictures), first, len(pictures)) for first, pictures in parts.items()]


def _key(first: int, pictures: Tensor) -> str:
    return f"{first}/{sha256(''.join(map(hash_of, pictures)).encode())}"
