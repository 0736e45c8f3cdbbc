"""A small inverter as a file, for tests that need one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import torch
from scenes import CLASSES, scene, smooth

from gradveil.core.defense import Defense
from gradveil.core.scenario import LocalTraining
from gradveil.data.photos import photos
from gradveil.generators.labeled_pictures import Labeled
from gradveil.generators.learn_inverter import Lesson, train_inverter
from gradveil.generators.provenance import as_bytes
from gradveil.generators.training import Course

LESSON = Lesson(sketch=32, hidden=32, copies=1)


def write_inverter(path: Path, *, examples: int = 1, defense: Defense = Defense(), steps: int = 1) -> str:  # noqa: B008
    """Of the model `smooth`, trained for a moment on photographs that no scene of the tests holds."""
    scenario = scene(smooth(), 1, examples, training=LocalTraining(steps=steps))
    images = as_bytes(photos(size=8, limit=88).images[8:])
    labels = torch.eye(CLASSES)[torch.arange(len(images)) % CLASSES]
    public = Labeled(name="photos", images=images, labels=labels, class_names=(), alike=0)
    train_inverter(scenario, defense, public, path, lesson=LESSON, course=Course(epochs=2, batch_size=16, rate=1e-3))
    return str(path)


@lru_cache
def tiny_inverters() -> list[str]:
    """For one picture in an update and for two; the same files for all tests of a process."""
    folder = Path(tempfile.mkdtemp(prefix="gradveil-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [write_inverter(folder / f"inverter{examples}.safetensors", examples=examples) for examples in (1, 2)]
