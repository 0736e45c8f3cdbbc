"""The models that the studies of this folder score with and attack.

    PYTHONPATH=src python3 papers/ats/models.py --root DATA --out DIR --device cuda semi:resnet20-4 plain:convnet32 ...

semi: a tenth of the training set, 50 epochs, as the search of ATS has it; stages: all of it with crops and flips, kept
after 0, 25, 50, 75 and 100 % of the epochs (`stage-25-NAME` ...); plain: without any augmentation; policies: crops,
flips and 100 random policies, one drawn for each picture; a policy such as 3-1-7+43-18-18: crops, flips and that one.
SGD as in the code of ATS, in bf16 on a GPU; a CPU that knows bf16 is faster with `--bf16` too. A model without
normalization inside needs a smaller `--rate`.
For Fashion-MNIST give `--data fashion-mnist`; `--classes 67` does with the first two archives of CIFAR-100.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from policy_rounds import drawn
from safetensors.torch import save_file
from torch import Tensor, nn
from victims import pictures_of, policy_of

from gradveil.core.types import Batch
from gradveil.data import Dataset
from gradveil.models import MODELS
from gradveil.train.centralized import accuracy, fit
from gradveil.transforms import Policy

KINDS = ("semi", "stages", "plain", "policies")  # any other is a policy


def main() -> None:
    args = arguments()
    train_set, test_set = (pictures_of(args, split) for split in ("train", "test"))
    args.out.mkdir(parents=True, exist_ok=True)
    for choice in args.models:
        kind, _, name = choice.partition(":")
        model = MODELS[name](
            classes=train_set.targets.shape[1], shape=train_set.shape, mean=train_set.mean, std=train_set.std
        )
        begin = time.perf_counter()
        trained(kind, name, model, train_set, args)
        save(model, args.out / f"{kind}-{name}")
        report = {"model": choice, "seconds": round(time.perf_counter() - begin, 1), "epochs": epochs_of(kind, args)}
        print(json.dumps(report | {"accuracy": accuracy(model, Batch(test_set.images, test_set.targets))}), flush=True)


def epochs_of(kind: str, args: argparse.Namespace) -> int:
    return 50 if kind == "semi" else args.epochs


def trained(kind: str, name: str, model: nn.Module, data: Dataset, args: argparse.Namespace) -> None:
    step = 10 if kind == "semi" else 1
    options: dict[str, Any] = {"epochs": epochs_of(kind, args), "rate": args.rate, "augment": kind != "plain"}
    if kind == "policies":
        alternatives = tuple(policy.alternatives[0] for policy in drawn(100))
        options["policy"] = Policy(drawn(1)[0].library, alternatives)
    if kind not in KINDS:
        options["policy"] = policy_of(kind)

    def keep(epoch: int, loss: Tensor) -> None:
        share = 100 * epoch // options["epochs"]
        if args.device == "cpu":  # a GPU would have to wait for the number
            print(f"{kind}:{name}, {epoch} of {options['epochs']} epochs, loss {loss.item():.3f}", flush=True)
        if kind == "stages" and share in (0, 25, 50, 75, 100) and 100 * epoch % options["epochs"] == 0:
            save(model, args.out / f"stage-{share}-{name}")

    keep(0, torch.zeros(()))
    some = Batch(data.images[::step], data.targets[::step])
    fit(model, some, device=args.device, bf16=args.bf16, on_epoch=keep, **options)


def save(model: nn.Module, path: Path) -> None:
    state = {name: x.detach().cpu().contiguous() for name, x in model.state_dict().items()}
    save_file(state, f"{path}.safetensors")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--classes", type=int, help="the first ones of CIFAR-100 only")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--epochs", type=int, default=20, help="of all kinds but semi")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--bf16", action="store_true", default=torch.cuda.is_available())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("models", nargs="+", metavar="KIND:MODEL")
    return parser.parse_args()


if __name__ == "__main__":
    main()
