"""Whether a tagger knows what it talks about: top-1 and top-5 accuracy on ImageNet pictures.

    PYTHONPATH=src python3 benchmarks/tagger.py tagger.safetensors imagenet128_500.zip --pictures 100

The zip holds pictures and a labels.csv with columns `file` and `class_index` (0 to 999). Published EfficientNet-Lite0
weights on 100 of 500 pictures of 128 x 128, one of each of 100 classes: 72 % top-1, 89 % top-5.
"""

from __future__ import annotations

import argparse
import csv
import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gradveil.core.interval import rate_interval
from gradveil.metrics.jaccard import load_tagger


def sample(path: Path, count: int) -> tuple[list[Tensor], Tensor]:
    """Evenly spaced pictures, each [3, h, w], and their classes."""
    with zipfile.ZipFile(path) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("labels.csv").decode())))
        chosen = rows[:: max(1, len(rows) // count)][:count]
        pictures = [np.asarray(Image.open(io.BytesIO(archive.read(row["file"]))).convert("RGB")) for row in chosen]
    classes = torch.tensor([int(row["class_index"]) for row in chosen])
    return [torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255 for picture in pictures], classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tagger")
    parser.add_argument("pictures_zip", type=Path)
    parser.add_argument("--pictures", type=int, default=100)
    given = parser.parse_args()
    pictures, classes = sample(given.pictures_zip, given.pictures)
    tagger = load_tagger(given.tagger, (3, 224, 224), 1000)
    first = torch.cat([tagger.logits(picture[None]).topk(5, 1).indices for picture in pictures])
    for top in (1, 5):
        hits = int((first[:, :top] == classes[:, None]).any(1).sum())
        between = rate_interval(hits, len(classes))
        print(f"top-{top}: {hits} of {len(classes)}, 95 % interval {between.low:.0%} to {between.high:.0%}")


if __name__ == "__main__":
    main()
