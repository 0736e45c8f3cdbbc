"""Where 0 and 1 are: a gray picture, and the best that a small picture enlarged by four can be.

    PYTHONPATH=src python3 papers/rog/limits.py --root DATA --size 128 --clients 4

The best in PSNR: the victims projected by least squares on what `bicubic` can draw, and cut off at 0 and 1. No search
in it ends above, but for the little that cutting off may add.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from victims import BATCH, about, bench_of, parser, tell

FACTOR = 4


def main() -> None:
    args = parser(__doc__).parse_args()
    bench = bench_of(args)
    images = bench.victims(args.clients, BATCH).images.float().cpu()
    for name, shown in {"gray": torch.full_like(images, 0.5), "bicubic": projected(images).clamp(0, 1)}.items():
        scores = {metric.name: about(metric.score(shown, images).flatten()) for metric in bench.metrics}
        tell({"limit": name, "size": args.size, "clients": args.clients} | scores, args.out)


def projected(images: Tensor, factor: int = FACTOR) -> Tensor:
    """The nearest pictures that are small ones enlarged: rows and columns are enlarged by the same matrix."""
    rows, columns = (on_enlarged(side, factor) for side in images.shape[-2:])
    return (rows @ images.double() @ columns).to(images.dtype)


def on_enlarged(side: int, factor: int) -> Tensor:
    """The symmetric matrix that projects lines of this length on enlarged ones."""
    points = torch.eye(side // factor, dtype=torch.float64)[None, :, :, None]
    enlarge = F.interpolate(points, size=(side, 1), mode="bicubic", align_corners=False)[0, :, :, 0].T
    return enlarge @ torch.linalg.pinv(enlarge)


if __name__ == "__main__":
    main()
