"""Small untrained generators as files, for tests that need one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from scenes import CLASSES
from torch import Tensor

from gradveil.generators.conditional import ConditionalGan
from gradveil.generators.stored import store_network
from gradveil.models.start import weights_from

ARCHITECTURE = {"classes": CLASSES, "width": 32, "blocks": 1, "full": 2, "noise": 256, "embedding": 16}


def write_generator(path: Path, seen: dict[str, Tensor] | None = None, **changes: int) -> str:
    """Pictures of 8 x 8; its weights are random, but it can draw nearly anything if the latent may go far."""
    architecture = ARCHITECTURE | changes
    with weights_from(0):
        network = ConditionalGan(**architecture).eval()
    return str(store_network(path, "conditional-gan", network, architecture, {}, seen or {}))


@lru_cache
def tiny_generator() -> str:
    """One file for all tests of a process."""
    folder = Path(tempfile.mkdtemp(prefix="gradveil-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_generator(folder / "generator.safetensors")
