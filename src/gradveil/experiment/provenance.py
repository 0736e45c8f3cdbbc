"""Where a run comes from: versions, hashes, command, times. Enough to say later whether it is the same."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradveil.core.compute import Compute
from gradveil.core.hashes import hash_model, hash_tensors, own_version, sha256
from gradveil.core.scenario import Scenario

SCHEMA = 1
BRIEF = ("gradveil", "torch", "precision", "model_sha256", "data_sha256", "config_sha256")  # what a result file says
HASHES = ("model_sha256", "data_sha256", "config_sha256")


def hash_data(scenario: Scenario, gallery: Tensor | None = None, also: Sequence[Scenario] = ()) -> str:
    """Of every picture and label that the run touches."""
    tensors = {"private.images": scenario.private.images, "private.labels": scenario.private.labels}
    for other in also:  # a larger batch has pictures of its own
        tensors |= {f"{other.name}.images": other.private.images, f"{other.name}.labels": other.private.labels}
    if scenario.public is not None:
        tensors |= {"public.images": scenario.public.images, "public.labels": scenario.public.labels}
    if gallery is not None:
        tensors["gallery"] = gallery
    return hash_tensors(tensors)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def several_versions(first: object, resumed: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The versions of gradveil that wrote a run, where it was more than one."""
    versions = list(dict.fromkeys([str(first), *(str(one.get("gradveil")) for one in resumed)]))
    return {"versions": versions} if len(versions) > 1 else {}


def device_name(device: str) -> str:
    if device.startswith("cuda"):
        return f"{device}: {torch.cuda.get_device_name(device)}"
    return f"{device}: {platform.processor() or platform.machine()}"


def provenance(
    scenario: Scenario,
    gallery: Tensor | None,
    config: str,
    seed: int,
    compute: Compute,
    also: Sequence[Scenario] = (),
) -> dict:
    """All that is known when a run starts; `finished` is filled in at its end."""
    return {
        "schema": SCHEMA,
        "gradveil": own_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device_name(compute.device),
        "precision": compute.precision,
        "backend": compute.backend,
        "seed": seed,
        "gallery": 0 if gallery is None else len(gallery),
        "model_sha256": hash_model(scenario.model),
        "data_sha256": hash_data(scenario, gallery, also),
        "config_sha256": sha256(config.encode()),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": now(),
        "finished": None,
    }
