"""ATS, table 8: other models and larger pictures, attacked without and with the policies that ATS found for each.

    PYTHONPATH=src:papers/ats python3 papers/ats/table8.py --root DATA --out OUT.jsonl --images 8 --steps 1000 \\
        --device cuda --precision tf32 mobilenet vit faces imagenet

The models are untrained, where the paper's are trained and its ViT is a larger one; UTKFace stands in for CelebA. One
line for every policy as soon as its model is done, with the back end that ran. The pictures come from DATA: CIFAR-100,
`utkface200_2000.zip` and `imagenet128_500.zip`, or from where `--faces` and `--imagenet` say; those of the latter are
enlarged from 128 to 224 pixels. A reconstruction is told from 1,000 other pictures of CIFAR-100, or from all others
where there are fewer.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from victims import GALLERY, Bench, attacked_together, defense_of, model_of, tell

from gradveil.attacks.invertgrad import invertgrad_ats
from gradveil.core.compute import Compute
from gradveil.core.scenario import LocalTraining
from gradveil.data import Dataset, load


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A quarter of the table: the paper's PSNR by policy, the last one being the hybrid."""

    model: str
    data: str
    size: int
    paper: dict[str, float]


CELLS = {
    "mobilenet": Cell(
        model="mobilenet-v2",
        data="cifar100",
        size=32,
        paper={"none": 11.24, "6-20-42": 8.27, "38-15-48": 7.51, "6-20-42+38-15-48": 7.86},
    ),
    "vit": Cell(
        model="vit-tiny",
        data="cifar100",
        size=32,
        paper={"none": 13.21, "20-3-38": 8.46, "7-5-21": 8.74, "20-3-38+7-5-21": 8.63},
    ),
    "faces": Cell(
        model="resnet18",
        data="utkface",
        size=112,
        paper={"none": 18.03, "21-19": 13.92, "3-2-38": 14.38, "21-19+3-2-38": 14.01},
    ),
    "imagenet": Cell(
        model="resnet18",
        data="imagenet",
        size=224,
        paper={"none": 12.53, "42-21-3": 7.62, "24-15-48": 8.89, "42-21-3+24-15-48": 8.43},
    ),
}


def main() -> None:
    args = arguments()
    for name in args.cells:
        attack_cell(name, CELLS[name], args)


def attack_cell(name: str, cell: Cell, args: argparse.Namespace) -> None:
    data = pictures(cell, args)
    bench, defenses = bench_of(cell, data, args), [defense_of(policy) for policy in cell.paper]
    seen, truths = zip(*(bench.observed(defense, args.images) for defense in defenses), strict=True)
    attack = invertgrad_ats(steps=args.steps, tv=args.tv)
    head = {"cell": name, "model": cell.model, "data": cell.data, "pixels": cell.size, "classes": data.targets.shape[1]}
    head |= {"steps": args.steps, "tv": args.tv, "images": args.images}
    head["others"] = len(bench.images[bench.others or GALLERY])
    for policy, report in zip(cell.paper, attacked_together(attack, seen, truths, bench, defenses), strict=True):
        tell(head | {"policy": policy, "paper": cell.paper[policy], **report}, args.out)


def pictures(cell: Cell, args: argparse.Namespace) -> Dataset:
    if cell.data == "cifar100":
        return load("cifar100", root=args.root)
    if cell.data == "utkface":
        return load("utkface", root=args.faces or args.root / "utkface200_2000.zip", size=cell.size)
    return load("imagenet", root=args.imagenet or args.root / "imagenet128_500.zip", size=cell.size, classes=25)


def bench_of(cell: Cell, data: Dataset, args: argparse.Namespace) -> Bench:
    others = slice(args.images, None) if len(data) < GALLERY.stop else GALLERY
    return Bench(
        model=model_of(cell.model, data, None, args.device),
        images=data.images.to(args.device),
        labels=data.targets.to(args.device),
        compute=Compute(device=args.device, precision=args.precision),
        training=LocalTraining(loss=data.loss),
        others=others,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, type=Path, help="folder with CIFAR-100 and the archives")
    parser.add_argument("--faces", type=Path, help="archive or folder of UTKFace")
    parser.add_argument("--imagenet", type=Path, help="archive or folder of ImageNet pictures")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tv", type=float, default=1e-2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("cells", nargs="+", choices=sorted(CELLS))
    return parser.parse_args()


if __name__ == "__main__":
    main()
