"""ResNet20-4 on CIFAR-100 with the recipe of the ATS code, kept at four stages of its training.

    PYTHONPATH=src:benchmarks python3 papers/ats/train.py --root DATA --out CHECKPOINTS --epochs 40 --device cuda

SGD with Nesterov momentum 0.9, weight decay 5e-4, batches of 128, rate 0.1 falling tenfold at 3/8, 5/8 and 7/8, random
crops and flips. Theirs takes 200 epochs. The stages are 0, 1, 10 and 100 % of the steps.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from quality import share_right, train
from safetensors.torch import save_file

from gradveil.data import load
from gradveil.models import MODELS

STAGES = (0, 1, 10, 100)  # percent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="folder with CIFAR-100")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    train_set, test_set = (load("cifar100", root=args.root, split=split) for split in ("train", "test"))
    model = MODELS["resnet20-4"](classes=100, mean=train_set.mean, std=train_set.std).to(args.device)
    steps = args.epochs * (len(train_set.images) // 128)
    args.out.mkdir(parents=True, exist_ok=True)

    def keep(step: int) -> None:
        for stage in STAGES:
            if step == round(steps * stage / 100):
                model.eval()
                state = {name: x.detach().cpu().contiguous() for name, x in model.state_dict().items()}
                save_file(state, args.out / f"stage-{stage}.safetensors")
                report = {"stage": stage, "step": step, "accuracy": share_right(model, test_set)}
                print(json.dumps(report), flush=True)
                model.train()

    train(model, train_set, args.epochs, after_step=keep)


if __name__ == "__main__":
    main()
