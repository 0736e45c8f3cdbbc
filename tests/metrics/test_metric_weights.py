"""benchmarks/metric_weights.py: Flax's arrays under torchvision's names, and no code from a pickle."""

from __future__ import annotations

import importlib.util
import os
import pickle
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gradveil.metrics.backbones import VGG16, Backbone

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/metric_weights.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metric_weights", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(backbone: Backbone) -> dict[str, dict]:
    """As Flax writes it: kernels are [height, width, in, out]."""
    shapes, tree = backbone.shapes(), {"VGG16_0": {}}
    for number, layer in enumerate(backbone.layers):
        after, before, height, width = shapes[f"features.{layer.index}.weight"]
        kernel = np.broadcast_to(np.arange(after, dtype=np.float32), (height, width, before, after)).copy()
        tree["VGG16_0"][f"Conv_{number}"] = {"kernel": kernel, "bias": np.full(after, number, np.float32)}
    for number, layer in enumerate(backbone.compared_layers):
        tree[f"NetLinLayer_{number}"] = {"Conv_0": {"kernel": np.ones((1, 1, layer.channels, 1), np.float32)}}
    return tree


def test_names_and_axes_are_turned_into_torchvisions(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "vgg16.ckpt").write_bytes(
        pickle.dumps(stored(VGG16), protocol=3).replace(b"numpy._core", b"numpy.core")
    )
    tensors, backbone = script.lpips_tensors(tmp_path / "vgg16.ckpt")
    assert backbone is VGG16
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == VGG16.shapes()
    assert tensors["features.28.bias"][0] == 12  # the last of thirteen
    assert tensors["features.0.weight"][5].unique().tolist() == [5.0]  # the axis that came last is the first


class Evil:
    def __reduce__(self) -> tuple:
        return os.system, ("true",)


def test_a_pickle_that_asks_for_code_is_refused(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "evil.ckpt").write_bytes(pickle.dumps({"VGG16_0": Evil()}, protocol=2))
    with pytest.raises(pickle.UnpicklingError, match="weights need no code"):
        script.lpips_tensors(tmp_path / "evil.ckpt")
