"""Our LPIPS against the authors' own code and linear layers (PyPI's `lpips` 0.1.4), and on their example pictures.

    pip install --no-deps --target theirs lpips==0.1.4 tqdm
    PYTHONPATH=src:theirs python benchmarks/lpips_reference.py --alex lpips_alex.npz --vgg lpips_vgg.safetensors

Their package takes the backbone from torchvision, which wants to download it; a stand-in gives it the numbers of our
file. Compared are 16 photographs with noise of several strengths, at 64 pixels as they are. `--examples` is a folder
with ex_ref.png, ex_p0.png and ex_p1.png of github.com/richzhang/PerceptualSimilarity (imgs/), which no package has.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from gradveil.data import load
from gradveil.metrics import METRICS
from gradveil.metrics.backbones import ALEXNET, VGG16
from gradveil.metrics.weights import read_weights

ALEX_LAYERS = ((64, 11, 4, 2), "M", (192, 5, 1, 2), "M", (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1))
VGG_WIDTHS = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512)
VGG_LAYERS = tuple(width if width == "M" else (width, 3, 1, 1) for width in VGG_WIDTHS)
STRENGTHS = (0.02, 0.1, 0.3)


def main() -> None:
    args = arguments()
    given = {"alex": (args.alex, ALEXNET, ALEX_LAYERS, 3), "vgg": (args.vgg, VGG16, VGG_LAYERS, 2)}
    for name, (path, backbone, layers, pool) in given.items():
        if path is None:
            continue
        tensors, _ = read_weights(path, backbone.shapes(), backbone.published, backbone.name)
        theirs = authors(name, features(layers, pool, tensors))
        ours = METRICS["lpips"](weights=path, resize=None) if name == "alex" else vgg(path)
        gaps = [gap(ours.score, theirs, strength) for strength in STRENGTHS]
        print(json.dumps({"network": name, "largest difference": max(gaps)} | examples(ours.score, args.examples)))


def vgg(path: Path) -> Any:
    return METRICS["lpips-vgg"](weights_vgg=path, resize=None)


def features(layers: tuple[Any, ...], pool: int, tensors: dict[str, Tensor]) -> nn.Sequential:
    """As torchvision lists them, with the numbers of our file."""
    built, before = nn.Sequential(), 3
    for layer in layers:
        if layer == "M":
            built.append(nn.MaxPool2d(pool, 2))
            continue
        width, kernel, stride, padding = layer
        built.extend([nn.Conv2d(before, width, kernel, stride, padding), nn.ReLU(inplace=True)])
        before = width
    wanted = {name.removeprefix("features."): x for name, x in tensors.items() if name.startswith("features.")}
    built.load_state_dict(wanted)
    return built


def authors(name: str, backbone: nn.Sequential) -> Any:
    """Their module, with this backbone in place of torchvision's."""
    stand_in: Any = ModuleType("torchvision")
    stand_in.models = SimpleNamespace()
    for other in ("alexnet", "vgg16"):
        setattr(stand_in.models, other, lambda pretrained: SimpleNamespace(features=backbone))
    sys.modules["torchvision"] = stand_in
    package = importlib.import_module("lpips")
    networks: Any = importlib.import_module("lpips.pretrained_networks")
    networks.tv = stand_in.models
    return package.LPIPS(net=name, version="0.1", verbose=False)


@torch.no_grad()
def gap(ours: Any, theirs: Any, strength: float) -> float:
    pictures = load("photos", size=64, limit=16).images
    noisy = pictures + strength * torch.randn(pictures.shape, generator=torch.Generator().manual_seed(0))
    got = noisy.clamp(0, 1)
    return float((ours(got, pictures) - theirs(got, pictures, normalize=True).flatten()).abs().max())


def examples(ours: Any, folder: Path | None) -> dict[str, float]:
    """Published for AlexNet: 0.722 and 0.138."""
    if folder is None:
        return {}
    read = {
        n: torch.from_numpy(np.array(Image.open(folder / f"{n}.png").convert("RGB")))
        for n in ("ex_ref", "ex_p0", "ex_p1")
    }
    pictures = {n: x.permute(2, 0, 1)[None].float() / 255 for n, x in read.items()}
    return {n: round(float(ours(pictures[n], pictures["ex_ref"])), 4) for n in ("ex_p0", "ex_p1")}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alex", type=Path, help="weights for `lpips`")
    parser.add_argument("--vgg", type=Path, help="weights for `lpips-vgg`")
    parser.add_argument("--examples", type=Path, help="folder with ex_ref.png, ex_p0.png and ex_p1.png")
    return parser.parse_args()


if __name__ == "__main__":
    main()
