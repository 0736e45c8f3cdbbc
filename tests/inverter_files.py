"""Small untrained inverters as files, for tests that need one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from scenes import NO_DEFENSE, SHAPE, drawn, scene, smooth
from torch import nn

from gradveil.core.client import parameters_of
from gradveil.core.defense import Defense
from gradveil.generators.inverter import Inverter
from gradveil.generators.learn_inverter import Lesson, architecture_of, simulation_of, store_inverter
from gradveil.models.start import weights_from

LESSON = Lesson(sketch=32, hidden=32, copies=1)


def write_inverter(path: Path, *, examples: int = 1, defense: Defense = NO_DEFENSE) -> str:
    """For the model `smooth`; it draws gray with something of the update in it."""
    simulation = simulation_of(scene(smooth(), 1, examples), defense, LESSON)
    shapes = {name: tuple(p.shape) for name, p in parameters_of(simulation.model).items()}
    with weights_from(0):
        network = Inverter(**architecture_of(simulation.sketch.count(shapes), simulation, LESSON))
        nn.init.normal_(network.draw.weight, std=0.02)
    network.blank.fill_(0.5)
    store_inverter(path, network, simulation, LESSON, {}, drawn(4, *SHAPE, seed=80))
    return str(path)


@lru_cache
def tiny_inverters() -> list[str]:
    """For one picture in an update and for two; the same files for all tests of a process."""
    folder = Path(tempfile.mkdtemp(prefix="gradveil-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return [write_inverter(folder / f"inverter{examples}.safetensors", examples=examples) for examples in (1, 2)]
